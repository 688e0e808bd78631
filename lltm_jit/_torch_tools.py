"""Answers to torch's tools about this package's operators: decompositions, and FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

from lltm_jit import native
from lltm_jit._library import OPERATORS, on_define

Shape: TypeAlias = Sequence[int]
Formula: TypeAlias = Callable[[SimpleNamespace], float]


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
            formula = partial(_flops, operator.default._schema, _FLOPS.get(name, lambda call: 0))
            counter.register_flop_formula(operator)(formula)

    for names in OPERATORS.values():
        count(names)
    on_define.append(count)


def _flops(schema: Any, formula: Formula, *args: Any, out_shape: Any, **named: Any) -> int:
    """The FLOPs of a call. A formula gets the arguments by name, tensors as their shapes, and
    `result`, the shape of the first result.
    """
    names = (argument.name for argument in schema.arguments)
    given = {**dict(zip(names, args, strict=False)), **named}
    result = out_shape if len(schema.returns) == 1 else out_shape[0]
    return round(formula(SimpleNamespace(**given, result=result)))


def _input_gates(call: SimpleNamespace) -> int:
    return 2 * prod(call.input[:-1]) * prod(call.weight_ih)


def _sequence(call: SimpleNamespace) -> int:
    return 2 * prod(call.gates[:2]) * prod(call.weight_hh)


def _cell(call: SimpleNamespace) -> int:
    return 2 * call.input[0] * prod(call.weights)


def _cell_backward(call: SimpleNamespace) -> int:
    of_input, of_weights, _, of_h, _ = call.output_mask
    return ((of_input or of_h) + of_weights) * _cell(call)


def _taps(f: Shape | None, factors: Sequence[int]) -> float:
    """The multiplications per result: after upsampling, one sample in `factors` is not zero."""
    if f is None:
        return 0
    if len(f) == 2:
        return prod(f) / prod(factors)
    return sum(f[0] / factor for factor in factors)


def _filtered_lrelu(call: SimpleNamespace) -> float:
    """Between the filters there are `down` squared times as many samples as after them."""
    between = call.down**2 * _taps(call.fu, (call.up, call.up))
    return 2 * prod(call.result) * (between + _taps(call.fd, (1, 1)))


_FLOPS: dict[str, Formula] = {
    "input_gates": _input_gates,
    "input_gates_backward": lambda call: sum(call.output_mask[:2]) * _input_gates(call),
    **dict.fromkeys(
        ("recurrent_sequence", "recurrent_sequence_states", "recurrent_sequence_forward"),
        _sequence,
    ),
    "recurrent_sequence_backward": lambda call: (1 + call.output_mask[1]) * _sequence(call),
    **dict.fromkeys(("lltm_cell", "lltm_cell_aten", "lltm_cell_forward", "lltm_forward"), _cell),
    "lltm_cell_backward": _cell_backward,
    "lltm_backward": lambda call: 4 * call.X[0] * prod(call.weights),
    "upfirdn2d": lambda call: 2 * prod(call.result) * _taps(call.f, call.up),
    **dict.fromkeys(
        ("filtered_lrelu", "filtered_lrelu_forward", "filtered_lrelu_linear"), _filtered_lrelu
    ),
}
