"""``benchmark stylegan``: the StyleGAN operators beside plain PyTorch, a copy, and float64.

On a GPU the times are those in a CUDA graph whose calls take turns with several tensors, so that
none finds its input in the cache. Small tensors are timed as a program calls, from the host.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from lltm_jit import native
from lltm_jit.jit import LltmJitError

from . import _cell, _measure, _report, _stylegan_report
from ._measure import GRAPH_CALLS
from ._stylegan_cases import FORWARD, OPERATORS, Case, Shape, cases, compile_variants
from ._stylegan_report import Error, Row

IMPLEMENTATIONS = ("cuda", "ref")  # as the functions call them
SHAPES: dict[str, list[Shape]] = {
    "cpu": [(4, 64, 128, 128), (1, 512, 64, 64)],
    "cuda": [(16, 512, 64, 64)],
}
DTYPES = {"cpu": [torch.float], "cuda": [torch.float, torch.half, torch.bfloat16]}
SMALL: Shape = (4, 64, 16, 16)  # a call costs the host more than the GPU
ERROR_SHAPE: Shape = (2, 16, 64, 64)
_ROTATION = 200e6  # bytes of inputs that take turns: several times the cache of a GPU
_MOST_INPUTS = 16


def run(args: argparse.Namespace, dtype: torch.dtype | None) -> int:
    """Measure, and print the tables; 1 when a result is further from float64 than it may be."""
    if args.plot:
        _report.need_matplotlib()
    native.load("stylegan")
    device = _cell.device(args.cuda, "stylegan")
    header = _measure.header(device)
    for name, fact in header.items():
        print(f"{name}: {fact}")
    operators = [args.only] if args.only else OPERATORS
    dtypes = [dtype] if dtype else DTYPES[device.type]
    shapes = [tuple(args.shape)] if args.shape else SHAPES[device.type]
    error_shape = shapes[0] if args.shape else ERROR_SHAPE
    errors = find_errors(operators, [dtype] if dtype else DTYPES["cuda"], error_shape, device)
    work = [(case, True) for case in chosen(operators, dtypes, shapes, device)]
    if device.type == "cuda":
        small = chosen(operators, dtypes[:1], [SMALL], device)
        work += [(case, False) for case in small if case.phase == FORWARD]
    if device.type == "cuda" and "filtered_lrelu" in operators:
        compile_variants(shapes, dtypes)
    bar = tqdm(work, desc="measuring", disable=not sys.stderr.isatty(), leave=False)
    rows = [measure(case, args.seconds, graph) for case, graph in bar]
    print(f"\n{_stylegan_report.tables(rows)}\n\n{_stylegan_report.error_table(errors)}")
    if args.json:
        _stylegan_report.save(args.json, header, rows, errors)
    if args.plot:
        _stylegan_report.plot(args.plot, header, rows)
    return 0 if all(error.good for error in errors) else 1


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
    steps = {impl: in_rotation(case, impl) for impl in IMPLEMENTATIONS}
    steps["copy"] = copy_in_rotation(case.bytes, case.device)
    if in_graph:
        timers = [graph_timer(name, step) for name, step in steps.items()]
    else:
        timers = [_measure.host_timer(step) for step in steps.values()]
    calls = GRAPH_CALLS if in_graph else 1
    kernels, plain, copy = _measure.take_turns(timers, seconds, calls)
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


def graph_timer(name: str, step: Callable[[], Any]) -> Any:
    timer = _measure.graph_timer(step)
    if timer is None:
        raise LltmJitError(f"{name} runs on a stream of its own, which a CUDA graph does not hold")
    return timer


def in_rotation(case: Case, impl: str) -> Callable[[], Any]:
    """A function that calls with other tensors each time."""
    count = inputs_in_turn(math.prod(case.shape) * case.dtype.itemsize, case.device)
    steps = itertools.cycle([case.step(case.inputs(seed), impl) for seed in range(count)])
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
    exact, exact_gradient = results(case, "ref", torch.double)
    kernels, kernels_gradient = results(case, "cuda", case.dtype)
    plain, plain_gradient = results(case, "ref", case.dtype)
    return Error(
        operator=case.operator,
        case=case.name,
        dtype=str(case.dtype).removeprefix("torch."),
        kernels=distance(kernels, exact),
        plain=distance(plain, exact),
        rounding=distance(exact.to(case.dtype), exact),
        kernels_gradient=distance(kernels_gradient, exact_gradient),
        plain_gradient=distance(plain_gradient, exact_gradient),
    )


def results(case: Case, impl: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The result, and the gradient to x of its weighted sum, from inputs of the case's dtype."""
    leaves = [tensor.to(dtype).requires_grad_() for tensor in case.inputs()]
    result = case.run(leaves, impl)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(result.shape, generator=generator).to(case.device, case.dtype)
    (gradient,) = torch.autograd.grad(result, leaves[:1], weight.to(dtype))
    return result.detach(), gradient


def distance(value: Tensor, exact: Tensor) -> float:
    """Norm of the difference over the norm."""
    return ((value.double() - exact).norm() / exact.norm()).item()
