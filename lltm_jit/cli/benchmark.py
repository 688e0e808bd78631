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
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lltm_jit.ops.rnn.lltm import lltm_cell_reference

from . import _cell, _jit_benchmark, _load_benchmark, _measure, _opponent, _plots, _report
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


PICTURES = ("png", "svg", "pdf", "eps", "jpg", "webp")
VARIANTS = """\
what is timed:
  cell             one LLTM cell: all implementations, in tables (the default)
  py, cpp, cuda    one of them: plain PyTorch, ATen called from C++, or the CUDA kernels (no -c
                   needed), in the line that the PyTorch tutorial's benchmark prints
  sequence         recurrent layers over whole sequences, beside torch.nn's
  stylegan         the StyleGAN operators, beside plain PyTorch and a copy
  jit              builds, rebuilds and cached imports of this package
  load             builds of one source by lltm_jit.load, beside torch's load
"""
EXAMPLES = """\
examples:
  {prog} benchmark                                  the cell, on the CPU
  {prog} benchmark cuda -b 64 -s 512 -r 1000        the tutorial's line, on the GPU
  {prog} benchmark sequence -c --layer LSTM --dtype half
  {prog} benchmark stylegan --json before.json --plot before.png
  {prog} benchmark stylegan --from before.json --plot again.svg
  {prog} benchmark --compare before.json            ratios to an earlier run of the cell
"""
_MEASURED = ("cell", "sequence", "stylegan")
_OF = {  # the variants that an option is for
    "batch_size": ("py", "cpp", "cuda", "cell", "sequence"),
    "features": ("py", "cpp", "cuda", "cell"),
    "state_size": ("py", "cpp", "cuda", "cell", "sequence"),
    "cuda": ("py", "cpp", "cuda", *_MEASURED),
    "double": ("py", "cpp", "cuda", *_MEASURED),
    "dtype": ("py", "cpp", "cuda", *_MEASURED),
    "runs": ("py", "cpp", "cuda"),
    "scale": ("py", "cpp", "cuda"),
    "seconds": _MEASURED,
    "json": _MEASURED,
    "plot": _MEASURED,
    "given": _MEASURED,
    "compare": ("cell",),
    "against": ("cell", "jit"),
    "define": ("cell", "jit"),
    "layer": ("sequence",),
    "steps": ("sequence",),
    "only": ("stylegan",),
    "shape": ("stylegan",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-h] [WHAT] [options]"
    parser.description = f"{parser.description}\n\n{VARIANTS}"
    variants = [*_cell.VARIANTS, "cell", "sequence", "stylegan", "jit", "load"]
    parser.add_argument(
        "variant", choices=variants, nargs="?", default="cell", metavar="WHAT", help="see above"
    )
    _cell.add_sizes(parser, (16, 32, 128))
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="element type (default: float; of sequence and stylegan several)",
    )
    parser.add_argument("-d", "--double", action="store_true", help="the same as --dtype double")
    line = parser.add_argument_group("py, cpp, cuda")
    line.add_argument(
        "-r", "--runs", type=_cell.positive, default=100, metavar="N", help="calls (default: 100)"
    )
    line.add_argument(
        "--scale", choices=SCALES, default="us", help="unit of the times (default: us)"
    )
    tables = parser.add_argument_group("cell, sequence, stylegan")
    tables.add_argument(
        "--seconds",
        type=seconds,
        default=0.3,
        metavar="S",
        help="seconds for each figure (default: 0.3)",
    )
    tables.add_argument("--json", type=new_file, metavar="FILE", help="write the figures to FILE")
    tables.add_argument(
        "--plot",
        type=picture,
        metavar="FILE",
        help=f"draw the figures, as {', '.join(PICTURES)}; the cell by default at six sizes",
    )
    tables.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="FILE",
        help="measure nothing: show and draw the figures that --json wrote to FILE",
    )
    cell = parser.add_argument_group("cell, jit")
    cell.add_argument(
        "--compare", type=Path, metavar="FILE", help="ratios to the figures in FILE (cell only)"
    )
    cell.add_argument(
        "--against", type=Path, metavar="DIR", help="an opponent: an LLTM's C++ sources"
    )
    cell.add_argument(
        "--define",
        action="append",
        default=[],
        metavar="MACRO",
        help="defined for the opponent's C++ files; may be given several times",
    )
    sequence = parser.add_argument_group("sequence")
    sequence.add_argument("--layer", choices=LAYERS, help="one layer (default: all three)")
    sequence.add_argument(
        "--steps", type=_cell.positive, metavar="N", help="of a sequence (default: 256)"
    )
    stylegan = parser.add_argument_group("stylegan")
    stylegan.add_argument("--only", choices=STYLEGAN, help="one operator (default: all three)")
    stylegan.add_argument(
        "--shape",
        type=_cell.positive,
        nargs=4,
        metavar=("N", "C", "H", "W"),
        help="of the input (default: by device: large, and on a GPU small as well)",
    )
    parser.set_defaults(refuse_others=partial(_refuse_others, parser))


def _refuse_others(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """An option that says nothing about what is timed would be passed over in silence."""
    for name, variants in _OF.items():
        if getattr(args, name) != parser.get_default(name) and args.variant not in variants:
            option = f"--{'from' if name == 'given' else name.replace('_', '-')}"
            parser.error(f"{option} is an option of {', '.join(variants)}, not of {args.variant}")


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, but got {text!r}")
    return value


def picture(text: str) -> Path:
    """A file to draw to, of a kind that can be drawn."""
    path = new_file(text)
    if path.suffix.lower().removeprefix(".") not in PICTURES:
        kinds = ", ".join(f".{kind}" for kind in PICTURES)
        raise argparse.ArgumentTypeError(f"expected a name that ends in one of {kinds}: {text!r}")
    return path


def new_file(text: str) -> Path:
    """A path to write to, refused before the measuring where its directory is missing."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    return path


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


def print_tables(args: argparse.Namespace, dtype: torch.dtype) -> int:
    # What can fail does so before the long part.
    before = _report.load(args.compare, _report.Row)[1] if args.compare else None
    if args.given:
        header, rows = _report.load(args.given, _report.Row)
        _report.show_header(header)
    else:
        device = _cell.device(args.cuda)
        cells = implementations(args, device)
        header = _measure.header(device)
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
