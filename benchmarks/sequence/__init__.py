"""``sequence``: recurrent layers over whole sequences, beside torch.nn's.

On a GPU also in CUDA graphs, and floats both exact and as TF32; on a CPU also beside a loop of
tutorial cells. All layers of one size take turns. Times are of one step.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lltm_jit.cli import _cell

from .. import options
from ..shared import times
from ..shared.gpu_kernels import compile_variants
from ..shared.table import Row
from .cases import (
    BACKWARD,
    LOOP,
    OURS,
    PHASES,
    Case,
    operations,
    theirs,
    training_step,
    use_precision,
)
from .floor import floor
from .goals import SIZES, goals

TITLE, WIDTH = "Recurrent layers, one step", 14
DTYPES = {
    "cpu": [torch.float, torch.bfloat16],
    "cuda": [torch.half, torch.bfloat16, torch.float],
}
_CHECKED_STEPS = 32  # more would make of each side's rounding errors what chance will


def add_options(parser: argparse.ArgumentParser) -> None:
    _cell.add_sizes(parser, ("several", None, "several"))
    options.add_measuring(parser)
    parser.add_argument("--layer", choices=list(OURS), help="one layer (default: all of them)")
    parser.add_argument(
        "--steps",
        type=_cell.positive,
        default=256,
        metavar="N",
        help="length of a sequence (default: 256)",
    )


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    device = _cell.device(args.cuda)
    layers = [args.layer] if args.layer else list(OURS)
    sizes = SIZES[device.type]
    if args.batch_size or args.state_size:
        sizes = [(args.batch_size or 16, args.state_size or 128)]
    dtype = options.dtype(args)
    cases = [
        Case(*size, args.steps, each, device, precision)
        for each in ([dtype] if dtype else DTYPES[device.type])
        for precision in precisions(device, each)
        for size in sizes
    ]
    if device.type == "cuda":
        compile_kernels(cases, layers)
    for case, phase in itertools.product(cases, PHASES):
        with use_precision(case.precision):
            group = rows(case, phase, layers, args.seconds)
        yield group


def precisions(device: torch.device, dtype: torch.dtype) -> Sequence[str]:
    """Those that torch's setting for recurrent layers has, where it matters."""
    return ("ieee", "tf32") if (device.type, dtype) == ("cuda", torch.float) else ("ieee",)


def compile_kernels(cases: Iterable[Case], layers: Sequence[str]) -> None:
    """Compile what our layers need on the GPU, before anything is measured."""
    for precision, group in itertools.groupby(cases, lambda case: case.precision):
        with use_precision(precision):
            compile_variants(
                replace(case, device=torch.device("meta")).step(layer, phase)
                for case in group
                for layer in layers
                for phase in PHASES
            )


def rows(case: Case, phase: str, layers: Sequence[str], seconds: float) -> list[Row]:
    """Time our layers, torch's and the loop in turns."""
    on_gpu = case.device.type == "cuda"
    loops = [LOOP] if not on_gpu and "LLTM" in layers else []
    names = list(dict.fromkeys([*layers, *(theirs(layer) for layer in layers), *loops]))
    functions = {name: case.step(name, phase) for name in names}
    modes = (times.GRAPH, times.HOST) if on_gpu else (times.HOST,)
    found = times.measure(functions, seconds, modes, dict.fromkeys(names, case.steps))
    group = [
        Row(
            table=f"{case.type}, {case.device.type}, {case.steps} steps, times of one step",
            case=f"B {case.batch_size}, H {case.hidden_size}",
            phase=phase,
            name=name,
            times=found[name],
            beside=goals(case, name, phase) if name in layers else {},
            check=check(case, name, phase) if name in layers else "-",
        )
        for name in names
    ]
    work = {layer: operations(case, layer, phase) for layer in layers}
    fastest = max(work[row.name] / row.best.median for row in group if row.name in work)
    peak = 0.0 if on_gpu else times.peak(case.device, case.dtype, fastest)[0]
    return [
        replace(
            row,
            floor=floor(case, row.name, phase, peak),
            figures={"GFLOP/s": work[row.name] / row.best.median / 1e9},
        )
        if row.name in work
        else row
        for row in group
    ]


def check(case: Case, layer: str, phase: str) -> str:
    """Whether a layer is as near to float64 as torch's, and the LLTM as the loop of cells.

    Compares outputs, or the gradients of inputs. Where torch has no such layer, the tests alone do.
    """
    plain = LOOP if layer == "LLTM" else theirs(layer)
    if plain not in (LOOP, f"nn.{layer}"):
        return "-"
    case = replace(case, steps=min(case.steps, _CHECKED_STEPS))
    exact = replace(case, dtype=torch.double)
    modules = [case.module(layer), case.module(plain), exact.module(plain)]
    for module in (modules[0], modules[2]):
        module.load_state_dict(modules[1].state_dict())
    inputs = [case.input(), case.input(), case.input().double()]
    found = [[result(*pair, phase)] for pair in zip(modules, inputs, strict=True)]
    # Tensor cores, which multiply floats on a GPU, truncate their sums.
    allowed = 4 if case.device.type == "cuda" and case.dtype == torch.float else 2
    return times.compare(found[0], found[1], found[2], times=allowed)


def result(module: nn.Module, x: Tensor, phase: str) -> Tensor:
    if phase == BACKWARD:
        return training_step(module, x)()[0]
    with torch.no_grad():
        return module(x)[0]
