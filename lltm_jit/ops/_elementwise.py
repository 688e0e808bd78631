"""How one Python function describes an elementwise operator.

Its name and parameters are the operator's, its docstring documents it, and its body is the maths in
plain PyTorch, which tests and benchmarks compare with. Schemas and calls of kernels follow from it.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit._library import define, refuse_wrong_types

FunctionT = TypeVar("FunctionT", bound=Callable[..., Tensor])


class Elementwise(NamedTuple):
    """One operator."""

    function: Callable[..., Tensor]  # what users call
    reference: Callable[..., Tensor]  # the same in plain PyTorch
    inputs: list[str]
    backward: list[str]  # the arguments of its derivative, which is <name>_backward


OPERATORS: dict[str, Elementwise] = {}


def elementwise(*saved: str, composite: bool = False) -> Callable[[FunctionT], FunctionT]:
    """Make an operator of a function, with the kernels whose maths is ``kernels/basic/<name>.h``.

    Args:
        saved: what the derivative is computed from, besides the gradient of the result: nothing,
            the names of the inputs, or a name for the result.
        composite: it is composed of other operators, and needs no derivative of its own.
    """

    def decorate(reference: FunctionT) -> FunctionT:
        name, signature = reference.__name__, inspect.signature(reference)

        @functools.wraps(reference)
        def function(*tensors: Tensor, **named: Tensor) -> Tensor:
            try:
                # Subclasses and modes with a __torch_function__ see the operator.
                if named or is_compiling() or has_torch_function(tensors):
                    return getattr(torch.ops.lltm_jit, name)(*tensors, **named)
                return getattr(native.basic, name)(*tensors)
            except (TypeError, RuntimeError):
                try:
                    args = signature.bind(*tensors, **named).args
                except TypeError as error:
                    raise TypeError(f"{name}(): {error}") from None
                refuse_wrong_types(name, args)
                raise

        inputs, backward = list(signature.parameters), [] if composite else ["grad", *saved]
        define("basic", f"{name}({_tensors(inputs)}) -> Tensor")
        if backward:
            results = "Tensor" if len(inputs) == 1 else f"({', '.join(['Tensor'] * len(inputs))})"
            define("basic", f"{name}_backward({_tensors(backward)}) -> {results}")
        OPERATORS[name] = Elementwise(function, reference, inputs, backward)
        return function  # type: ignore[return-value]

    return decorate


def _tensors(names: list[str]) -> str:
    return ", ".join(f"Tensor {name}" for name in names)
