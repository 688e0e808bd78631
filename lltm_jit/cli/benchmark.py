"""``benchmark``: all implementations of the LLTM cell side by side, or one in the tutorial's form.

``benchmark {py,cpp,cuda}`` prints the tutorial's line. Without a variant, and as ``cell``, it
prints a table a size and phase; ``--against DIR`` adds an implementation from C++ sources.
``jit`` times this engine's builds and imports, also beside torch's own `load` of those sources;
``load`` times one source with ``torch/extension.h``, beside torch's `load` and `load_inline`.
``sequence`` times recurrent layers over whole sequences, beside torch.nn's.
``stylegan`` times the StyleGAN operators beside plain PyTorch and a copy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tqdm import tqdm

from lltm_jit.ops.rnn.lltm import lltm_cell_reference

from . import (
    _busy,
    _cell,
    _jit_benchmark,
    _load_benchmark,
    _machine,
    _measure,
    _opponent,
    _plots,
    _report,
)
from ._benchmark_arguments import DTYPES, EXAMPLES, SCALES, TUTORIAL_SIZES, add_arguments
from ._measure import PHASES, Case, Cell

__all__ = ["EXAMPLES", "add_arguments", "run"]

SIZES = {  # batch, input, hidden; the last would take a CPU half a minute
    "cpu": [TUTORIAL_SIZES, (1, 128, 128), (64, 256, 512)],
    "cuda": [TUTORIAL_SIZES, (64, 256, 512), (128, 1024, 1024)],
}
ADDMM = "addmm alone"  # no implementation: the matrix product inside one, as a mark to compare with
PLOT_SIZES = [(16, hidden, hidden) for hidden in (32, 64, 128, 256, 512, 1024)]


def run(args: argparse.Namespace) -> int:
    args.refuse_others(args)
    if args.variant == "jit":
        return _jit_benchmark.run(args.against, args.define)
    if args.variant == "load":
        return _load_benchmark.run()
    if args.plot:
        _plots.need_matplotlib()  # before anything is measured
    if args.double:
        args.dtype = "double"
    chosen = DTYPES[args.dtype] if args.dtype else None
    if args.variant == "sequence":
        from . import _sequence_benchmark  # which imports the layers

        return _sequence_benchmark.run(args, chosen)
    if args.variant == "stylegan":
        from . import _stylegan_benchmark  # which loads the family, and builds it where it is not

        return _stylegan_benchmark.run(args, chosen)
    dtype = DTYPES[args.dtype or "float"]
    if args.variant == "cell":
        return print_tables(args, dtype)
    return print_line(args, _cell.device(args.cuda or args.variant == "cuda"), dtype)


# ------------------------------------------------------------------------- the tutorial's line --


def print_line(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> int:
    cell = ours(_cell.VARIANTS[args.variant])
    operands = Case(*_cell.sizes(args, TUTORIAL_SIZES), dtype, device).operands()
    forward, backward = [], []
    waiting = _busy.Waiting()
    for warming_up in [True] * 3 + [False] * args.runs:
        for operand in operands:
            operand.grad = None
        seconds, (new_h, new_cell) = timed(lambda: cell(*operands), device)
        loss = new_h.sum() + new_cell.sum()
        backward_seconds, _ = timed(loss.backward, device)
        if not warming_up:
            forward.append(seconds)
            backward.append(backward_seconds)
    busy = waiting.share() > _busy.LIMIT
    print(f"Forward: {_figures(forward, args.scale)} | Backward {_figures(backward, args.scale)}")
    if busy:  # not on the line, which programs read
        print("unreliable: threads waited for a processor", file=sys.stderr)
    return 0


def ours(impl: str) -> Cell:
    """One of our implementations; the reference as plain PyTorch, without the checks before it."""
    if impl == "reference":  # needs no build
        return lltm_cell_reference
    lltm_cell = _cell.functional().lltm_cell
    return lambda *operands: lltm_cell(*operands, impl=impl)


def timed(function: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Seconds of one call, the work that it started on the GPU included, and what it returned."""
    synchronize(device)
    start = time.perf_counter()
    result = function()
    synchronize(device)
    return time.perf_counter() - start, result


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _figures(seconds: list[float], unit: str) -> str:
    best, mean = min(seconds), sum(seconds) / len(seconds)
    return f"{best * SCALES[unit]:.3f}/{mean * SCALES[unit]:.3f} {unit}"


# ---------------------------------------------------------------------------------- the tables --


def print_tables(args: argparse.Namespace, dtype: torch.dtype) -> int:
    # What can fail does so before the long part.
    before = _report.load(args.compare, _report.Row)[1] if args.compare else None
    if args.given:
        header, rows = _report.load(args.given, _report.Row)
        _report.show_header(header)
    else:
        device = _cell.device(args.cuda)
        cells = implementations(args, device)
        header = _machine.header(device)
        _report.show_header(header)
        rows = measure_all(args, cells, device, dtype)
    print(f"\n{_report.tables(rows)}")
    if args.json:
        _report.save(args.json, header, rows)
    if before is not None:
        print(f"\n{_report.comparison(before, rows)}")
    if args.plot:
        _report.plot(args.plot, header, rows)
    return 1 if any(row.check.startswith("error") for row in rows) else 0


def measure_all(
    args: argparse.Namespace, cells: dict[str, Cell], device: torch.device, dtype: torch.dtype
) -> list[_report.Row]:
    cases = [Case(*sizes, dtype, device) for sizes in chosen_sizes(args, device)]
    work = [(case, phase) for case in cases for phase in PHASES]
    bar = tqdm(work, desc="measuring", disable=not sys.stderr.isatty(), leave=False)
    return [row for case, phase in bar for row in measure(case, phase, cells, args.seconds)]


def implementations(args: argparse.Namespace, device: torch.device) -> dict[str, Cell]:
    """What is compared, by name; the speed-ups of the tables are against the first."""
    opponent = {}
    if args.against:
        opponent[args.against.name] = _opponent.build(args.against, args.define, device)
    return {**opponent, **{impl: ours(impl) for impl in ("reference", "aten", "fused")}}


def chosen_sizes(args: argparse.Namespace, device: torch.device) -> list[tuple[int, int, int]]:
    if any((args.batch_size, args.features, args.state_size)):
        return [_cell.sizes(args, TUTORIAL_SIZES)]
    return PLOT_SIZES if args.plot else SIZES[device.type]


def measure(
    case: Case, phase: str, cells: dict[str, Cell], seconds: float
) -> Iterator[_report.Row]:
    """Check each implementation at one size, and time them in turns."""
    checks = {name: check(cells, name, case) for name in cells}
    functions = {
        name: _measure.run_phase(cell, case.operands(), phase) for name, cell in cells.items()
    }
    if phase == PHASES[0]:
        checks[ADDMM], functions[ADDMM] = "-", _measure.addmm_alone(case)
    timers = [_measure.host_timer(function) for function in functions.values()]
    host = dict(zip(functions, _measure.take_turns(timers, seconds), strict=True))
    graph = {}
    if case.device.type == "cuda":
        found = {name: _measure.graph_timer(function) for name, function in functions.items()}
        graphs = {name: timer for name, timer in found.items() if timer}
        times = _measure.take_turns([*graphs.values()], seconds, _measure.GRAPH_CALLS)
        graph = dict(zip(graphs, times, strict=True))
    best = {name: graph.get(name, host[name]).median for name in functions}
    fastest = case.operations(phase) / min(best.values())
    peak_operations, peak_bytes = _measure.peak(case.device, case.dtype, fastest)
    for name, seconds in best.items():
        yield _report.Row(
            device=case.device.type,
            dtype=str(case.dtype).removeprefix("torch."),
            batch_size=case.batch_size,
            input_size=case.input_size,
            hidden_size=case.hidden_size,
            phase=phase,
            implementation=name,
            check=checks[name],
            host=host[name],
            graph=graph.get(name),
            gflops=case.operations(phase) / seconds / 1e9,
            gflops_share=case.operations(phase) / seconds / peak_operations,
            gbytes=case.bytes(phase) / seconds / 1e9,
            gbytes_share=case.bytes(phase) / seconds / peak_bytes,
        )


def check(cells: dict[str, Cell], name: str, case: Case) -> str:
    """What the tables say of an implementation's results."""
    return _measure.mismatch(cells[name], cells["reference"], case) or "match"
