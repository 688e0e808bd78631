"""Answers to torch's tools about this package's operators: decompositions, and FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

from lltm_jit import native
from lltm_jit._library import OPERATORS, on_define

Shape: TypeAlias = Sequence[int]


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return functions that express this package's operators in ATen operations.

    They are for :meth:`torch.export.ExportedProgram.run_decompositions`. The result runs without
    this package, and tools such as ``torch.onnx.export(program, dynamo=True)`` can convert it. A
    layer becomes an unrolled loop, so its number of steps is fixed, and should be small.

    Returns:
        A table of functions, by operator. Merge it with torch's own to get core ATen operations
        only, ``{**torch.export.default_decompositions(), **lltm_jit.decompositions()}``.

    Example:
        >>> program = torch.export.export(lltm_jit.LLTM(3, 4), (torch.randn(5, 2, 3),))
        >>> plain = program.run_decompositions(lltm_jit.decompositions())
        >>> {n.target.namespace for n in plain.graph.nodes if hasattr(n.target, "namespace")}
        {'aten'}
    """
    return {
        getattr(torch.ops.lltm_jit, name).default: partial(native.formula, family, name)
        for family, names in OPERATORS.items()
        for name in names
    }


def count_flops(counter: ModuleType) -> None:
    """Let ``torch.utils.flop_counter`` count this package's operators as torch counts its own: two
    FLOPs for each multiplication in products and filters, none elsewhere.
    """

    def count(names: Sequence[str]) -> None:
        for name in names:
            operator = getattr(torch.ops.lltm_jit, name)
            counter.register_flop_formula(operator)(_FLOPS.get(name, _none))

    for names in OPERATORS.values():
        count(names)
    on_define.append(count)


# The functions below get each tensor argument as its shape.


def _none(*args: Any, **others: Any) -> int:
    return 0


def _input_gates(input: Shape, weight_ih: Shape, *args: Any, **others: Any) -> int:
    return 2 * prod(input[:-1]) * prod(weight_ih)


def _input_gates_backward(
    grad: Shape, input: Shape, weight_ih: Shape, output_mask: Sequence[bool], *args: Any, **_: Any
) -> int:
    return sum(output_mask[:2]) * _input_gates(input, weight_ih)


def _sequence(gates: Shape, weight_hh: Shape, *args: Any, **others: Any) -> int:
    return 2 * prod(gates[:2]) * prod(weight_hh)


def _sequence_backward(*args: Any, **others: Any) -> int:
    gates, weight_hh, output_mask = args[3], args[4], args[17]
    return (1 + output_mask[1]) * _sequence(gates, weight_hh)


def _cell(input: Shape, weights: Shape, *args: Any, **others: Any) -> int:
    return 2 * input[0] * prod(weights)


def _cell_backward(*args: Any, **others: Any) -> int:
    input, weights, output_mask = args[2], args[3], args[9]
    of_inputs = output_mask[0] or output_mask[3]
    return (of_inputs + output_mask[1]) * _cell(input, weights)


def _tutorial_backward(*args: Any, **others: Any) -> int:
    X, weights = args[6], args[8]
    return 2 * _cell(X, weights)


def _taps(f: Shape | None, factors: Sequence[int]) -> float:
    """The multiplications per result: after upsampling, one sample in `factors` is not zero."""
    if f is None:
        return 0
    if len(f) == 2:
        return prod(f) / prod(factors)
    return sum(f[0] / factor for factor in factors)


def _upfirdn2d(
    x: Shape, f: Shape | None, up: Sequence[int], *args: Any, out_shape: Shape, **others: Any
) -> int:
    return round(2 * prod(out_shape) * _taps(f, up))


def _filtered_lrelu(
    x: Shape, fu: Shape | None, fd: Shape | None, b: Shape | None, up: int, down: int,
    *args: Any, out_shape: Any, **others: Any,
) -> int:  # fmt: skip
    y = out_shape if isinstance(out_shape[0], int) else out_shape[0]
    return _both_filters(y, fu, fd, up, down)


def _filtered_lrelu_linear(
    x: Shape, signs: Shape, fu: Shape | None, fd: Shape | None, up: int, down: int,
    *args: Any, out_shape: Any, **others: Any,
) -> int:  # fmt: skip
    return _both_filters(out_shape[0], fu, fd, up, down)


def _both_filters(y: Shape, fu: Shape | None, fd: Shape | None, up: int, down: int) -> int:
    """Between the filters there are `down` squared times as many samples as after them."""
    between = prod(y) * down * down
    return round(2 * (between * _taps(fu, (up, up)) + prod(y) * _taps(fd, (1, 1))))


_FLOPS: dict[str, Callable[..., int]] = {
    "input_gates": _input_gates,
    "input_gates_backward": _input_gates_backward,
    "recurrent_sequence": _sequence,
    "recurrent_sequence_states": _sequence,
    "recurrent_sequence_forward": _sequence,
    "recurrent_sequence_backward": _sequence_backward,
    "lltm_cell": _cell,
    "lltm_cell_aten": _cell,
    "lltm_cell_forward": _cell,
    "lltm_forward": _cell,
    "lltm_cell_backward": _cell_backward,
    "lltm_backward": _tutorial_backward,
    "upfirdn2d": _upfirdn2d,
    "filtered_lrelu": _filtered_lrelu,
    "filtered_lrelu_forward": _filtered_lrelu,
    "filtered_lrelu_linear": _filtered_lrelu_linear,
}
