"""``sequence``: recurrent layers over whole sequences, compared with torch.nn's.

On a GPU, layers also run in CUDA graphs, and floats both exactly and as TF32. On a CPU, they are
also compared with a loop of tutorial cells. All layers of one size take turns. Times are of one
step; memory is what a call adds at its peak; errors are norms of differences from float64.
``--published`` and ``--draw`` have sizes of their own, and list layers that are slower than
torch's. ``--heads`` and ``--padding`` compare our layers; ``--resets`` resets rows in sequences;
``--others`` takes minGRU and LayerNormLSTM.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lltm_jit.cli import lltm
from lltm_jit.jit import LltmJitError

from .. import options
from ..shared import times
from ..shared.table import Row
from . import heads, others, padding, resets
from .cases import (
    BACKWARD,
    LOOP,
    OURS,
    PHASES,
    Case,
    compile_side_by_side,
    operations,
    theirs,
    training_step,
    use_precision,
)
from .floor import floor
from .goals import SIZES, goals
from .published import drawn_cases, published_cases

TITLE, WIDTH = "Recurrent layers, one step", 32
DTYPES = {
    "cpu": [torch.float, torch.bfloat16],
    "cuda": [torch.half, torch.bfloat16, torch.float],
}
_CHECKED_STEPS = 32  # over more steps, rounding errors grow by chance


def add_options(parser: argparse.ArgumentParser) -> None:
    lltm.add_sizes(parser, ("several", None, "several"))
    options.add_measuring(parser)
    parser.add_argument("--layer", choices=list(OURS), help="one layer (default: all of them)")
    parser.add_argument(
        "--steps",
        type=lltm.positive,
        metavar="N",
        help="length of a sequence (default: 256)",
    )
    cases = parser.add_mutually_exclusive_group()
    cases.add_argument("--published", action="store_true", help="layers of published sizes")
    cases.add_argument("--draw", type=lltm.positive, metavar="N", help="N layers of random sizes")
    cases.add_argument(
        "--heads",
        action="store_true",
        help="768 units in heads, compared with one head (default: bfloat16, -b 16 --steps 1024)",
    )
    cases.add_argument(
        "--padding",
        action="store_true",
        help="any hidden size compared with the next multiple of 16 (default: -b 20 --steps 35)",
    )
    cases.add_argument(
        "--others",
        action="store_true",
        help="minGRU against a copy, LayerNormLSTM against TorchScript (default: half, -b 16)",
    )
    cases.add_argument(
        "--resets",
        action="store_true",
        help="an LSTM reset at 3 %% of the steps, compared with torch's layer cut at the resets "
        "(default: float, on a GPU as TF32)",
    )
    parser.add_argument("--seed", type=int, default=0, help="for --draw (default: 0)")


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    device = lltm.device(args.cuda)
    if args.heads or args.padding or args.others:
        yield from measure_ours(args, device)
        return
    if args.resets:
        yield from measure_resets(args, device)
        return
    cases = cases_of(args, device)
    if device.type == "cuda":
        compile_kernels(cases)
    for (case, layers), phase in itertools.product(cases, PHASES):
        with use_precision(case.precision):
            group = rows(case, phase, layers, args.seconds)
        yield group


def measure_ours(args: argparse.Namespace, device: torch.device) -> Iterator[list[Row]]:
    """``--heads``, ``--padding`` and ``--others``."""
    if args.state_size or args.layer or (args.others and args.steps):
        given = "--others" if args.others else "--heads and --padding"
        less = "-s, --steps and --layer" if args.others else "-s and --layer"
        raise LltmJitError(f"{given} have layers of their own: leave out {less}")
    if args.others:
        dtype = options.dtype(args) or torch.half
        yield from others.measure(args.batch_size or 16, dtype, device, args.seconds)
        return
    if args.heads:
        dtype = options.dtype(args) or torch.bfloat16
        rows, steps = args.batch_size or 16, args.steps or 1024
        yield from heads.measure(rows, steps, dtype, device, args.seconds)
        return
    sizes = (args.batch_size or 20, 0, args.steps or 35)
    cases = [
        Case(*sizes, dtype, device, precision, "LSTM")
        for dtype, precision in types_of(args, device)
    ]
    groups = [group for case in cases for group in padding.beside_multiples(case)]
    if device.type == "cuda":
        compile_kernels((case, [case.layer]) for group in groups for case in group)
    for group, phase in itertools.product(groups, PHASES):
        with use_precision(group[0].precision):
            found = padding.rows(group, phase, args.seconds)
        yield found


def measure_resets(args: argparse.Namespace, device: torch.device) -> Iterator[list[Row]]:
    """``--resets``, at sizes of its own unless some are given."""
    if args.layer not in (None, resets.OURS):
        raise LltmJitError(f"--resets has LSTMs alone: leave out --layer {args.layer}")
    dtype = options.dtype(args) or torch.float
    size = None
    if args.batch_size or args.state_size or args.steps:
        size = (args.steps or 64, args.batch_size or 64, args.state_size or 128)
    cases = resets.cases(dtype, precisions(device, dtype)[-1], device, size)
    yield from resets.measure(cases, args.seconds)


def types_of(args: argparse.Namespace, device: torch.device) -> list[tuple[torch.dtype, str]]:
    """Element types, with the precisions of floats."""
    dtype = options.dtype(args)
    return [
        (each, precision)
        for each in ([dtype] if dtype else DTYPES[device.type])
        for precision in precisions(device, each)
    ]


def cases_of(args: argparse.Namespace, device: torch.device) -> list[tuple[Case, list[str]]]:
    """The cases to measure, and our layers for each."""
    types = types_of(args, device)
    layers = [args.layer] if args.layer else list(OURS)
    if args.published or args.draw:
        if args.batch_size or args.state_size or args.steps:
            raise LltmJitError(
                "--published and --draw have sizes of their own: leave out -b, -s and --steps"
            )
        found = (
            published_cases(device, types)
            if args.published
            else drawn_cases(device, types, args.draw, args.seed)
        )
        chosen = [(case, [case.layer]) for case in found if case.layer in layers]
        if not chosen:
            raise LltmJitError(f"none of these sizes is of a layer {args.layer}")
        return chosen
    sizes = SIZES[device.type]
    if args.batch_size or args.state_size:
        sizes = [(args.batch_size or 16, args.state_size or 128)]
    return [
        (Case(*size, args.steps or 256, each, device, precision), layers)
        for each, precision in types
        for size in sizes
    ]


def precisions(device: torch.device, dtype: torch.dtype) -> Sequence[str]:
    """The values of torch's setting for recurrent layers, where it matters."""
    return ("ieee", "tf32") if (device.type, dtype) == ("cuda", torch.float) else ("ieee",)


def compile_kernels(cases: Iterable[tuple[Case, list[str]]]) -> None:
    """Compile our layers' kernels for the GPU in parallel, before anything is measured."""
    meta = torch.device("meta")
    by_precision = sorted(cases, key=lambda pair: pair[0].precision)
    for precision, group in itertools.groupby(by_precision, lambda pair: pair[0].precision):
        calls = {
            (name, case.dtype, case.batch_size, case.hidden_size, case.directions): case
            for case, layers in group
            for name in layers
        }
        modules = [replace(case, device=meta).module(call[0]) for call, case in calls.items()]
        with use_precision(precision):
            compile_side_by_side(modules, [case.batch_size for case in calls.values()])


def rows(case: Case, phase: str, layers: Sequence[str], seconds: float) -> list[Row]:
    """Time our layers, torch's and the loop in turns."""
    on_gpu = case.device.type == "cuda"
    loops = [LOOP] if not on_gpu and "LLTM" in layers else []
    names = list(dict.fromkeys([*layers, *(theirs(layer) for layer in layers), *loops]))
    functions = {name: case.step(name, phase) for name in names}
    figures = {name: {"MiB": peak_memory(functions[name])} if on_gpu else {} for name in names}
    steps = dict.fromkeys(names, case.steps)
    found = times.measure(functions, seconds, times.modes(case.device), steps)
    work = {layer: operations(case, layer, phase) for layer in layers}
    best = {layer: next(iter(found[layer].values())).median for layer in layers}
    fastest = max(work[layer] / best[layer] for layer in layers)
    peak = 0.0 if on_gpu else times.peak(case.device, case.dtype, fastest)[0]
    checks = {}
    for layer in layers:
        figures[layer]["GFLOP/s"] = work[layer] / best[layer] / 1e9
        checks[layer], errors = check(case, layer, phase)
        for name, error in errors.items():
            figures.setdefault(name, {})["error"] = error
    length = "" if case.layer else f", {case.steps} steps"
    return [
        Row(
            table=f"{case.type}, {case.device.type}{length}, times of one step",
            case=case.title,
            phase=phase,
            name=name,
            times=found[name],
            beside=goals(case, name, phase) if name in layers else {},
            floor=floor(case, name, phase, peak) if name in layers else 0.0,
            figures=figures[name],
            check=checks.get(name, "-"),
        )
        for name in names
    ]


def peak_memory(step: Callable[[], Any]) -> float:
    """MiB that a call adds on the GPU at its peak, its results included."""
    step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def check(case: Case, layer: str, phase: str) -> tuple[str, dict[str, float]]:
    """Whether a layer is as near to float64 as torch's, and the LLTM as the loop of cells.

    It compares outputs, or the gradients of inputs, and returns both errors by name. With TF32, a
    layer may also have the error of a float64 layer with parameters and input rounded to TF32,
    because torch's layer multiplies exactly at some sizes. Layers that torch does not have are
    checked by the tests alone.
    """
    plain = LOOP if layer == "LLTM" else theirs(layer)
    if plain not in (LOOP, f"nn.{layer}"):
        return "-", {}
    case = replace(case, steps=min(case.steps, _CHECKED_STEPS))
    exact = replace(case, dtype=torch.double)
    modules = [case.module(layer), case.module(plain), exact.module(plain)]
    for module in (modules[0], modules[2]):
        module.load_state_dict(modules[1].state_dict())
    inputs = [case.input(), case.input(), case.input().double()]
    ours, usual, right = (result(*pair, phase) for pair in zip(modules, inputs, strict=True))
    # Tensor cores, which multiply floats on a GPU, truncate their sums.
    allowed = 4 if case.device.type == "cuda" and case.dtype == torch.float else 2
    errors = {
        name: ((found.double() - right).norm() / right.norm()).item()
        for name, found in ((layer, ours), (plain, usual))
    }
    if case.precision == "tf32":
        rounded = {name: to_tf32(value) for name, value in modules[1].state_dict().items()}
        modules[2].load_state_dict(rounded)
        others = result(modules[2], to_tf32(case.input()).double(), phase)
        usual = max(usual, others, key=lambda found: (found - right).abs().max().item())
    return times.compare([ours], [usual], [right], times=allowed), errors


def to_tf32(tensor: Tensor) -> Tensor:
    """Floats rounded to TF32, which has 13 fewer bits."""
    return (tensor.detach().view(torch.int) + 0x1000 & ~0x1FFF).view(torch.float)


def result(module: nn.Module, x: Tensor, phase: str) -> Tensor:
    if phase == BACKWARD:
        return training_step(module, x)()[0]
    with torch.no_grad():
        return module(x)[0]
