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
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lltm_jit.ops.rnn.lltm import lltm_cell_reference

from . import _cell, _jit_benchmark, _load_benchmark, _measure, _opponent, _report
from ._measure import PHASES, Case, Cell

SCALES = {"s": 1, "ms": 1e3, "us": 1e6}
DTYPES = {name: getattr(torch, name) for name in ("half", "bfloat16", "float", "double")}
LAYERS = ("LLTM", "LSTM", "GRU")
STYLEGAN = ("bias_act", "upfirdn2d", "filtered_lrelu")  # operators of its tables
TUTORIAL_SIZES = (16, 32, 128)
SIZES = {  # batch, input, hidden; the last would take a CPU half a minute
    "cpu": [TUTORIAL_SIZES, (1, 128, 128), (64, 256, 512)],
    "cuda": [TUTORIAL_SIZES, (64, 256, 512), (128, 1024, 1024)],
}
ADDMM = "addmm alone"  # no implementation: the matrix product inside one, as a mark to compare with
PLOT_SIZES = [(16, hidden, hidden) for hidden in (32, 64, 128, 256, 512, 1024)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    variants = [*_cell.VARIANTS, "cell", "jit", "load", "sequence", "stylegan"]
    parser.add_argument(
        "variant",
        choices=variants,
        nargs="?",
        default="cell",
        help="plain PyTorch, ATen from C++, or the CUDA kernels, in the tutorial's form; default: "
        "all of them in tables (cell); jit: builds and imports; load: torch's headers, "
        "beside torch; sequence: recurrent layers; stylegan: the StyleGAN operators",
    )
    _cell.add_sizes(parser)
    parser.add_argument("-r", "--runs", type=_cell.positive, default=100, help="%(default)s")
    parser.add_argument("--scale", choices=SCALES, default="us", help="unit, %(default)s")
    parser.add_argument("-d", "--double", action="store_true", help="the same as --dtype double")
    parser.add_argument("--dtype", choices=DTYPES, help="float; of sequence and stylegan several")
    tables = parser.add_argument_group("of the tables")
    tables.add_argument("--seconds", type=float, default=0.3, help="for each figure, %(default)s")
    tables.add_argument("--against", type=Path, metavar="DIR", help="C++ sources of an opponent")
    tables.add_argument(
        "--define",
        action="append",
        default=[],
        metavar="MACRO",
        help="for the opponent's C++ files",
    )
    tables.add_argument("--json", type=new_file, metavar="FILE", help="write the figures")
    tables.add_argument("--compare", type=Path, metavar="FILE", help="show ratios to those in FILE")
    tables.add_argument(
        "--plot", type=new_file, metavar="FILE", help="draw the figures, by default of six sizes"
    )
    sequence = parser.add_argument_group("of sequence")
    sequence.add_argument("--layer", choices=LAYERS, help="one layer, by default all")
    sequence.add_argument("--steps", type=_cell.positive, help="of a sequence, 256")
    stylegan = parser.add_argument_group("of stylegan")
    stylegan.add_argument("--only", choices=STYLEGAN, help="one operator, by default all")
    stylegan.add_argument(
        "--shape", type=_cell.positive, nargs=4, metavar=("N", "C", "H", "W"), help="of the input"
    )


def new_file(text: str) -> Path:
    """A path to write to, refused before the measuring where its directory is missing."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    return path


def run(args: argparse.Namespace) -> int:
    if args.variant == "jit":
        return _jit_benchmark.run(args.against, args.define)
    if args.variant == "load":
        return _load_benchmark.run()
    if args.double:
        args.dtype = "double"
    chosen = DTYPES[args.dtype] if args.dtype else None
    if args.variant == "sequence":
        from . import _sequence_benchmark  # which imports the layers

        return _sequence_benchmark.run(args, chosen)
    if args.variant == "stylegan":
        from . import _stylegan_benchmark  # which loads the family, and builds it where it is not

        return _stylegan_benchmark.run(args, chosen)
    device = _cell.device(args.cuda or args.variant == "cuda")
    dtype = DTYPES[args.dtype or "float"]
    if args.variant == "cell":
        return print_tables(args, device, dtype)
    return print_line(args, device, dtype)


# ------------------------------------------------------------------------- the tutorial's line --


def print_line(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> int:
    cell = ours(_cell.VARIANTS[args.variant])
    operands = Case(*_cell.sizes(args, TUTORIAL_SIZES), dtype, device).operands()
    forward, backward = [], []
    for warming_up in [True] * 3 + [False] * args.runs:
        for operand in operands:
            operand.grad = None
        seconds, (new_h, new_cell) = timed(lambda: cell(*operands), device)
        loss = new_h.sum() + new_cell.sum()
        backward_seconds, _ = timed(loss.backward, device)
        if not warming_up:
            forward.append(seconds)
            backward.append(backward_seconds)
    print(f"Forward: {_figures(forward, args.scale)} | Backward {_figures(backward, args.scale)}")
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


def print_tables(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> int:
    # What can fail does so before the long part.
    before = _report.load(args.compare)[1] if args.compare else None
    if args.plot:
        _report.need_matplotlib()
    cells = implementations(args, device)
    header = _measure.header(device)
    for name, fact in header.items():
        print(f"{name}: {fact}")
    cases = [Case(*sizes, dtype, device) for sizes in chosen_sizes(args, device)]
    work = [(case, phase) for case in cases for phase in PHASES]
    bar = tqdm(work, desc="measuring", disable=not sys.stderr.isatty(), leave=False)
    rows = [row for case, phase in bar for row in measure(case, phase, cells, args.seconds)]
    print(f"\n{_report.tables(rows)}")
    if args.json:
        _report.save(args.json, header, rows)
    if before is not None:
        print(f"\n{_report.comparison(before, rows)}")
    if args.plot:
        _report.plot(args.plot, header, rows)
    return 1 if any(row.check.startswith("error") for row in rows) else 0


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
    peak_operations, peak_bytes = _measure.peak(case.device, case.dtype)
    for name in functions:
        best = graph.get(name, host[name]).median
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
            gflops=case.operations(phase) / best / 1e9,
            gflops_share=case.operations(phase) / best / peak_operations,
            gbytes=case.bytes(phase) / best / 1e9,
            gbytes_share=case.bytes(phase) / best / peak_bytes,
        )


def check(cells: dict[str, Cell], name: str, case: Case) -> str:
    """What the tables say of an implementation's results."""
    return _measure.mismatch(cells[name], cells["reference"], case) or "match"
