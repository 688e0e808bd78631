"""``benchmark stylegan``: the StyleGAN operators beside plain PyTorch, a copy, and float64.

On a GPU the times are those in a CUDA graph whose calls take turns with several tensors, so that
none finds its input in the cache. Small tensors are timed as a program calls, from the host. Each
row is printed when it is measured.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from lltm_jit import native

from . import _cell, _machine, _measure, _report, _stylegan_report
from ._recorder import Recorder
from ._stylegan_cases import FORWARD, OPERATORS, Case, Shape, cases, compile_kernels
from ._stylegan_report import Error, Row

IMPLEMENTATIONS = ("cuda", "ref")  # as the functions call them
SHAPES: dict[str, list[Shape]] = {
    "cpu": [(4, 64, 128, 128), (1, 512, 64, 64)],
    "cuda": [(16, 512, 64, 64)],
}
DTYPES = {"cpu": [torch.float], "cuda": [torch.float, torch.half, torch.bfloat16]}
SMALL: Shape = (4, 64, 16, 16)  # a call costs the host more than the GPU
# Large enough on a GPU for the kernels of large tensors.
ERROR_SHAPES: dict[str, Shape] = {"cpu": (2, 16, 64, 64), "cuda": (4, 64, 64, 64)}
_ROTATION = 200e6  # bytes of inputs that take turns: several times the cache of a GPU
_MOST_INPUTS = 16
_MOST_COPIED = 256e6  # bytes; the copy of more is as many times that of these


def run(args: argparse.Namespace, dtype: torch.dtype | None) -> int:
    """Measure, and print each row; 1 when a result is further from float64 than it may be."""
    if args.given:
        header, rows = _report.load(args.given, Row)
        errors = _stylegan_report.load_errors(args.given)
        _report.show_header(header)
        for table in _stylegan_report.by_group(rows):
            _stylegan_report.show(table, max(len(row.case) for row in table))
    else:
        device = _cell.device(args.cuda, "stylegan")  # refused before anything is built
        native.load("stylegan")
        header = _machine.header(device)
        _report.show_header(header)
        rows, errors = measure_all(args, device, dtype)
    print(f"\n{_stylegan_report.error_table(errors)}")
    if args.json:
        _stylegan_report.save(args.json, header, rows, errors)
    if args.plot:
        _stylegan_report.plot(args.plot, header, rows)
    above = _stylegan_report.above(errors)
    print("\nabove their limits:" if above else "\nno error is above its limit", *above, sep="\n")
    return 1 if above else 0


def measure_all(
    args: argparse.Namespace, device: torch.device, dtype: torch.dtype | None
) -> tuple[list[Row], list[Error]]:
    operators = [args.only] if args.only else OPERATORS
    dtypes = [dtype] if dtype else DTYPES[device.type]
    shapes = [tuple(args.shape)] if args.shape else SHAPES[device.type]
    error_shape = shapes[0] if args.shape else ERROR_SHAPES[device.type]
    if device.type == "cuda" and "filtered_lrelu" in operators:
        compile_kernels(shapes, dtypes, error_shape)
    errors = find_errors(operators, [dtype] if dtype else DTYPES["cuda"], error_shape, device)
    rows = []
    for group in groups(operators, dtypes, shapes, device):
        width = max(len(case.name) for case, _ in group)
        found = (measure(case, args.seconds, graph) for case, graph in group)
        rows += _stylegan_report.show(found, width)
    return rows, errors


def groups(
    operators: Iterable[str],
    dtypes: Sequence[torch.dtype],
    shapes: Iterable[Shape],
    device: torch.device,
) -> list[list[tuple[Case, bool]]]:
    """The cases of each table, and whether they are timed in a graph."""
    found = itertools.product(operators, dtypes, shapes)
    tables = [[(case, True) for case in chosen([o], [d], [s], device)] for o, d, s in found]
    if device.type == "cuda":
        small = [chosen([operator], dtypes[:1], [SMALL], device) for operator in operators]
        tables += [[(case, False) for case in of if case.phase == FORWARD] for of in small]
    return tables


def chosen(
    operators: Iterable[str],
    dtypes: Iterable[torch.dtype],
    shapes: Iterable[Shape],
    device: torch.device,
) -> list[Case]:
    found = itertools.product(operators, dtypes, shapes)
    return [
        case for operator, dtype, shape in found for case in cases(operator, shape, dtype, device)
    ]


# ---------------------------------------------------------------------------------------- times --


def measure(case: Case, seconds: float, may_use_graph: bool) -> Row:
    """Time the kernels, plain PyTorch and a copy in turns."""
    in_graph = may_use_graph and case.device.type == "cuda"
    count = inputs_in_turn(math.prod(case.shape) * case.dtype.itemsize, case.device)
    inputs = [case.inputs(seed) for seed in range(count)]
    steps = {impl: in_rotation(case, impl, inputs) for impl in IMPLEMENTATIONS}
    copied = min(case.bytes, int(_MOST_COPIED))
    steps["copy"] = copy_in_rotation(copied, case.device)
    calls = {name: _measure.calls_in_graph(step) if in_graph else 1 for name, step in steps.items()}
    if in_graph:
        timers = [
            _measure.sure_graph_timer(name, step, calls[name]) for name, step in steps.items()
        ]
    else:
        timers = [_measure.host_timer(step) for step in steps.values()]
    # A copy of a part is that part of a call.
    counts = [calls["cuda"], calls["ref"], calls["copy"] * copied / case.bytes]
    kernels, plain, copy = _measure.take_turns(timers, seconds, counts)
    return Row(
        operator=case.operator,
        case=case.name,
        phase=case.phase,
        device=case.device.type,
        dtype=str(case.dtype).removeprefix("torch."),
        shape=case.shape,
        in_graph=in_graph,
        bytes=case.bytes,
        kernels=kernels,
        plain=plain,
        copy=copy,
    )


def in_rotation(case: Case, impl: str, inputs: Iterable[list[Tensor]]) -> Callable[[], Any]:
    """A function that calls with other tensors each time."""
    steps = itertools.cycle([case.step(tensors, impl) for tensors in inputs])
    return lambda: next(steps)()


def copy_in_rotation(size: int, device: torch.device) -> Callable[[], Any]:
    """A function that reads and writes `size` bytes together, other ones each time."""
    elements = max(1, size // 8)  # of float, read and written
    count = inputs_in_turn(4 * elements, device)
    in_turn = itertools.cycle([torch.zeros(elements, device=device) for _ in range(count)])
    return lambda: next(in_turn).clone()


def inputs_in_turn(size: int, device: torch.device) -> int:
    """How many tensors of `size` bytes take turns; on a CPU one, as a program's is in its cache."""
    if device.type == "cpu":
        return 1
    return min(max(2, math.ceil(_ROTATION / size)), _MOST_INPUTS)


# --------------------------------------------------------------------------------------- errors --


def find_errors(
    operators: Iterable[str], dtypes: Iterable[torch.dtype], shape: Shape, device: torch.device
) -> list[Error]:
    """Of every call once, whatever its phases."""
    found = chosen(operators, dtypes, [shape], device)
    calls = {(case.operator, case.name, case.dtype): case for case in found}
    return [error_of(case) for case in calls.values()]


def error_of(case: Case) -> Error:
    """Compare results and gradients to x with those of plain PyTorch in float64."""
    calls = [Call(case, "ref", torch.double), Call(case, "cuda"), Call(case, "ref")]
    exact, kernels, plain = (call.result.detach() for call in calls)
    weight = weight_of(case, exact)
    with Recorder() as recorder:
        kernels_gradient = calls[1].gradient(weight)
    exact_gradient, plain_gradient = calls[0].gradient(weight), calls[2].gradient(weight)
    kernels_exact = exact_gradient
    if case.operator == "filtered_lrelu":
        # A sample next to 0 or to the clamp may be on the other side of it, where the derivative is
        # another number: the exact gradient is that of the signs that the kernels have written.
        linear, (grad, *others) = recorder.calls[-1]
        kernels_exact = linear(grad.double(), *others)[0]
    return Error(
        operator=case.operator,
        case=case.name,
        dtype=str(case.dtype).removeprefix("torch."),
        kernels=distance(kernels, exact),
        plain=distance(plain, exact),
        rounding=distance(exact.to(case.dtype), exact),
        kernels_gradient=distance(kernels_gradient, kernels_exact),
        plain_gradient=distance(plain_gradient, exact_gradient),
    )


class Call:
    """The result of a case, from inputs of its dtype that are cast to another."""

    def __init__(self, case: Case, impl: str, dtype: torch.dtype | None = None) -> None:
        self.leaves = [t.to(dtype or case.dtype).requires_grad_() for t in case.inputs()]
        self.result = case.run(self.leaves, impl)

    def gradient(self, weight: Tensor) -> Tensor:
        """Of x, of the weighted sum of the result."""
        weight = weight.to(self.result.dtype)
        return torch.autograd.grad(self.result, self.leaves[:1], weight)[0]


def weight_of(case: Case, exact: Tensor) -> Tensor:
    """Random numbers; 0 where rounding decides whether a result is clamped, and has a gradient."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(exact.shape, generator=generator).to(case.device, case.dtype)
    if case.clamp is None:
        return weight
    distances = (exact.abs() - case.clamp).abs()
    return weight.masked_fill(distances < 4 * torch.finfo(case.dtype).eps * case.clamp, 0)


def distance(value: Tensor, exact: Tensor) -> float:
    """Norm of the difference over the norm."""
    return ((value.double() - exact).norm() / exact.norm()).item()
