"""``cell``: all implementations of the LLTM cell side by side, in every phase.

They are checked, and timed in turns. ``--against DIR`` adds a cell from C++ sources elsewhere.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lltm_jit.cli import lltm

from . import options, other_cell
from .other_cell import Cell
from .shared import times
from .shared.table import Row, group_of, type_name

TITLE, WIDTH = "LLTM cell", 22
PHASES = ("forward, no_grad", "forward", "forward + backward")
SIZES = {  # batch, input, hidden; the last would take a CPU half a minute
    "cpu": [lltm.TUTORIAL_SIZES, (1, 128, 128), (64, 256, 512)],
    "cuda": [lltm.TUTORIAL_SIZES, (64, 256, 512), (128, 1024, 1024)],
}
PLOT_SIZES = [(16, hidden, hidden) for hidden in (32, 64, 128, 256, 512, 1024)]
ADDMM = "addmm alone"  # only the matrix product (GEMM) of a cell, to compare with
_OURS = ("reference", "aten", "fused")


def add_options(parser: argparse.ArgumentParser) -> None:
    lltm.add_sizes(parser, ("several",) * 3)
    options.add_measuring(parser)
    options.add_opponent(parser)


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    device = lltm.device(args.cuda)
    cells: dict[str, Cell] = {}  # by name; ratios are to the first
    if args.against:
        cells[args.against.name] = other_cell.build(args.against, args.define, device)
    cells |= {impl: lltm.implementation(impl) for impl in _OURS}
    sizes = PLOT_SIZES if args.plot else SIZES[device.type]
    if any((args.batch_size, args.features, args.state_size)):
        sizes = [lltm.sizes(args, lltm.TUTORIAL_SIZES)]
    for each in sizes:
        case = Case(*each, options.dtype(args) or torch.float, device)
        checks = {name: check(cell, cells["reference"], case) for name, cell in cells.items()}
        for phase in PHASES:
            yield rows(case, phase, cells, checks, args.seconds)


@dataclass(frozen=True)
class Case:
    """One size to measure, with its dtype and device."""

    batch_size: int
    input_size: int
    hidden_size: int
    dtype: torch.dtype
    device: torch.device

    def operands(self) -> list[Tensor]:
        sizes = (self.batch_size, self.input_size, self.hidden_size)
        return lltm.operands(sizes, self.dtype, self.device)

    def operations(self, phase: str) -> int:
        """Multiplications and additions of the matrix products, which are nearly all work."""
        forward = 2 * self.batch_size * 3 * self.hidden_size * (self.hidden_size + self.input_size)
        return 3 * forward if phase == PHASES[2] else forward

    def bytes(self, phase: str) -> int:
        """The fewest bytes that must move: every operand read once, every result written once."""
        B, I, H = self.batch_size, self.input_size, self.hidden_size  # noqa: E741
        weights = 3 * H * (H + I) + 3 * H
        state, gates = 2 * B * H, 3 * B * H
        forward = weights + B * I + state + state
        # The backward reads what the forward read, the new cell, the gates and two gradients, and
        # writes a gradient for each operand.
        operands = weights + B * I + state
        backward = operands + B * H + gates + state + operands
        elements = {PHASES[0]: forward, PHASES[1]: forward + gates}
        elements[PHASES[2]] = forward + gates + backward
        return elements[phase] * self.dtype.itemsize


def rows(
    case: Case, phase: str, cells: dict[str, Cell], checks: dict[str, str], seconds: float
) -> list[Row]:
    """Time each implementation at one size, and the matrix product inside them, in turns."""
    functions = {name: run_phase(cell, case.operands(), phase) for name, cell in cells.items()}
    if phase == PHASES[0]:
        functions[ADDMM] = addmm_alone(case)
    modes = (times.HOST, times.GRAPH) if case.device.type == "cuda" else (times.HOST,)
    found = times.measure(functions, seconds, modes)
    table = f"{type_name(case.dtype)}, {case.device.type}"
    sizes = f"B {case.batch_size}, I {case.input_size}, H {case.hidden_size}"
    first, *others = functions
    beside = {name: {first: None} for name in others}
    group = group_of(table, sizes, phase, found, beside)
    operations, size = case.operations(phase), case.bytes(phase)
    fastest = min(row.best.median for row in group)
    rates = times.peak(case.device, case.dtype, operations / fastest)
    floor = max(operations / rates[0], size / rates[1])
    return [
        replace(
            row,
            floor=floor,
            check=checks.get(row.name, "-"),
            figures={
                "GFLOP/s": operations / row.best.median / 1e9,
                "GB/s": size / row.best.median / 1e9,
            },
        )
        for row in group
    ]


def run_phase(cell: Cell, operands: list[Tensor], phase: str) -> Callable[[], Any]:
    """A function without arguments that does what the phase says."""
    if phase == PHASES[0]:
        return torch.no_grad()(partial(cell, *operands))
    if phase == PHASES[1]:
        return lambda: cell(*operands)
    grads = [torch.ones_like(operands[3]), torch.ones_like(operands[4])]
    return lambda: torch.autograd.grad(cell(*operands), operands, grads)


def addmm_alone(case: Case) -> Callable[[], Any]:
    """Only the matrix product of a forward pass, to compare with."""
    input, weights, bias, old_h, _ = (tensor.detach() for tensor in case.operands())
    X, transposed = torch.cat([old_h, input], 1), weights.t()
    return lambda: torch.addmm(bias, X, transposed)


def check(cell: Cell, reference: Cell, case: Case) -> str:
    """How far results and gradients are from the float64 reference."""
    operands = case.operands()
    exact = results(reference, [tensor.detach().double().requires_grad_() for tensor in operands])
    return times.compare(results(cell, operands), results(reference, operands), exact)


def results(cell: Cell, operands: list[Tensor]) -> list[Tensor]:
    outputs = cell(*operands)
    grads = [torch.ones_like(output) for output in outputs]
    return [*outputs, *torch.autograd.grad(outputs, operands, grads)]
