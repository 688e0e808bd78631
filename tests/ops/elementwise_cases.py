"""What a row of the table of operators is, and the rows of elementwise ones, by their descriptions.

``lltm_jit/ops/basic.py`` has these. ``operator_cases.py`` has all rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from op_testing import as_tuple
from torch import Tensor

from lltm_jit.ops import (
    _elementwise,
    basic,  # noqa: F401  # which defines them
)

Calls = list[tuple[str, Sequence[Any]]]  # of operators, by name


@dataclass(frozen=True)
class Case:
    """One way of calling an operator, as a function of the tensors that it differentiates."""

    name: str
    arguments: list[str]  # the tensors' names
    function: Callable[..., Any]
    reference: Callable[..., Any]  # the same in plain PyTorch
    draw: Callable[[bool], Sequence[Tensor]]  # few numbers, or enough for several threads
    family: str | None = None  # whose kernels it runs; operations of torch are in no family
    calls: Callable[..., Calls] = lambda *tensors: []  # all operators that it consists of
    optional: tuple[str, ...] = ()  # arguments that may be None
    under_autocast: tuple[torch.dtype, ...] | None = None  # the results' dtypes; None: the inputs'
    sees: str | None = None  # what a tensor subclass sees called; None: the operator of its name
    library_sums: bool = False  # products are the library's, whose bits its threads may change
    public: bool = True
    exact_on_gpus: bool = True  # not where a gradient is a sum of atomics

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def operator(self) -> str:
        return self.name.partition(" ")[0]

    def near(self, device: str) -> dict[str, float]:
        """How near the results of two equal calls are, as torch.testing takes it."""
        return {"rtol": 0, "atol": 0} if device == "cpu" or self.exact_on_gpus else {}

    def inputs(
        self,
        device: str,
        dtype: torch.dtype = torch.double,
        large: bool = False,
        requires_grad: bool = True,
    ) -> list[Tensor]:
        drawn = [tensor.detach().to(device, dtype) for tensor in self.draw(large)]
        return [tensor.requires_grad_(requires_grad) for tensor in drawn]

    def results(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return as_tuple(self.function(*tensors))

    def expected(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return as_tuple(self.reference(*tensors))


def normal(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.double) for shape in shapes]


def elementwise_calls(name: str, count: int, *tensors: Tensor) -> Calls:
    backward = [torch.rand_like(tensors[0]) for _ in range(count)]
    return [(name, tensors), *([(f"{name}_backward", backward)] if count else [])]


def elementwise_case(name: str, operator: _elementwise.Elementwise) -> Case:
    inputs = operator.inputs
    return Case(
        name,
        inputs,
        operator.function,
        operator.reference,
        lambda large: normal(*[(501, 203) if large else (3, 4)] * len(inputs)),
        family="basic",
        calls=partial(elementwise_calls, name, len(operator.backward)),
    )


ELEMENTWISE = [elementwise_case(*item) for item in _elementwise.OPERATORS.items()]
