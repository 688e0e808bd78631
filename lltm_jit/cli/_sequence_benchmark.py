"""``benchmark sequence``: recurrent layers over whole sequences, beside torch.nn's.

On a GPU the times are those in a CUDA graph, and eager ones beside them; on a CPU also those of a
loop of tutorial cells. All layers of one size take turns. Each row is printed when it is measured.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from . import _cell, _machine, _measure, _report, _sequence_report
from ._measure import Times
from ._recorder import compile_variants
from ._sequence_cases import (
    BACKWARD,
    LOOP,
    OURS,
    PHASES,
    THEIRS,
    Case,
    floor,
    operations,
    training_step,
)
from ._sequence_report import SIZES, Row

DTYPES = {
    "cpu": [torch.float, torch.bfloat16],
    "cuda": [torch.half, torch.bfloat16, torch.float],
}
STEPS = 256
_CHECKED_STEPS = 32  # more would make of each side's rounding errors what chance will


def run(args: argparse.Namespace, dtype: torch.dtype | None) -> int:
    """Measure, and print each row; 1 when a result is further from float64 than it may be."""
    if args.given:
        header, rows = _report.load(args.given, Row)
        _report.show_header(header)
        for of_dtype in _sequence_report.by_dtype(rows):
            _sequence_report.show(of_dtype)
    else:
        device = _cell.device(args.cuda)
        header = _machine.header(device)
        _report.show_header(header)
        rows = measure_all(args, device, dtype)
    if args.json:
        _report.save(args.json, header, rows)
    if args.plot:
        _sequence_report.plot(args.plot, header, rows)
    above = _sequence_report.above(rows)
    print("\nslower than their goals:" if above else "\nno goal is missed", *above, sep="\n")
    return 1 if any(row.check.startswith("error") for row in rows) else 0


def measure_all(
    args: argparse.Namespace, device: torch.device, dtype: torch.dtype | None
) -> list[Row]:
    layers = [args.layer] if args.layer else list(OURS)
    sizes = SIZES[device.type]
    if args.batch_size or args.state_size:
        batch_size, _, hidden_size = _cell.sizes(args, (16, 0, 128))
        sizes = [(batch_size, hidden_size)]
    dtypes = [dtype] if dtype else DTYPES[device.type]
    cases = [
        [Case(*size, args.steps or STEPS, dtype, device) for size in sizes] for dtype in dtypes
    ]
    if device.type == "cuda":
        compile_kernels(itertools.chain.from_iterable(cases), layers)
    rows: list[Row] = []
    for of_dtype in cases:
        found = (
            row
            for case, phase in itertools.product(of_dtype, PHASES)
            for row in measure(case, phase, layers, args.seconds)
        )
        rows += _sequence_report.show(found)
    return rows


def compile_kernels(cases: Iterable[Case], layers: Sequence[str]) -> None:
    """Compile what our layers need on the GPU, before anything is measured."""
    compile_variants(
        replace(case, device=torch.device("meta")).step(layer, phase)
        for case in cases
        for layer in layers
        for phase in PHASES
    )


# ---------------------------------------------------------------------------------------- times --


def measure(case: Case, phase: str, layers: Sequence[str], seconds: float) -> list[Row]:
    """Time our layers, torch's and the loop in turns."""
    on_gpu = case.device.type == "cuda"
    loops = [LOOP] if not on_gpu and "LLTM" in layers else []
    names = list(dict.fromkeys([*layers, *(THEIRS[layer] for layer in layers), *loops]))
    steps = {name: case.step(name, phase) for name in names}
    eager = times(case, {name: _measure.host_timer(step) for name, step in steps.items()}, seconds)
    best = in_graphs(case, steps, seconds) if on_gpu else eager
    rates = [operations(case, layer, phase) / best[layer].median for layer in layers]
    peak = 0.0 if on_gpu else _measure.peak(case.device, case.dtype, max(rates))[0]
    return [
        Row(
            layer=layer,
            phase=phase,
            device=case.device.type,
            dtype=str(case.dtype).removeprefix("torch."),
            batch_size=case.batch_size,
            hidden_size=case.hidden_size,
            steps=case.steps,
            check=check(case, layer, phase),
            floor=floor(case, layer, phase, peak),
            ours=best[layer],
            torch=best[THEIRS[layer]],
            lltm=best["LLTM"] if "LLTM" in layers and layer != "LLTM" else None,
            eager=eager[layer] if on_gpu else None,
            eager_torch=eager[THEIRS[layer]] if on_gpu else None,
            loop=best.get(LOOP) if layer == "LLTM" else None,
        )
        for layer in layers
    ]


def in_graphs(case: Case, steps: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Times]:
    calls = {name: _measure.calls_in_graph(step) for name, step in steps.items()}
    timers = {
        name: _measure.sure_graph_timer(name, step, calls[name]) for name, step in steps.items()
    }
    return times(case, timers, seconds, [*calls.values()])


def times(
    case: Case, timers: dict[str, Any], seconds: float, calls: int | Sequence[int] = 1
) -> dict[str, Times]:
    """Seconds a step."""
    each = [calls] * len(timers) if isinstance(calls, int) else calls
    found = _measure.take_turns([*timers.values()], seconds, [case.steps * n for n in each])
    return dict(zip(timers, found, strict=True))


# --------------------------------------------------------------------------------------- errors --


def check(case: Case, layer: str, phase: str) -> str:
    """Whether a layer is as near to float64 as torch's, and the LLTM as the loop of cells.

    Compares outputs, or the gradients of inputs.
    """
    plain = LOOP if layer == "LLTM" else THEIRS[layer]
    case = replace(case, steps=min(case.steps, _CHECKED_STEPS))
    exact = replace(case, dtype=torch.double)
    modules = [case.module(layer), case.module(plain), exact.module(plain)]
    for module in (modules[0], modules[2]):
        module.load_state_dict(modules[1].state_dict())
    inputs = [case.input(), case.input(), case.input().double()]
    # Else cuDNN's error in float is that of its 16-bit products.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = [[result(*pair, phase)] for pair in zip(modules, inputs, strict=True)]
    # Tensor cores, which multiply floats on a GPU, truncate their sums.
    allowed = 4 if case.device.type == "cuda" and case.dtype == torch.float else 2
    return _measure.compare(found[0], found[1], found[2], times=allowed) or "match"


def result(module: nn.Module, x: Tensor, phase: str) -> Tensor:
    if phase == BACKWARD:
        return training_step(module, x)()[0]
    with torch.no_grad():
        return module(x)[0]
