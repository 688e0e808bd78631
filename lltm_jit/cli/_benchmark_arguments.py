"""The options of ``benchmark``: what each is for, and what it may be."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

import torch

from . import _cell

SCALES = {"s": 1, "ms": 1e3, "us": 1e6}
DTYPES = {name: getattr(torch, name) for name in ("half", "bfloat16", "float", "double")}
LAYERS = ("LLTM", "LSTM", "GRU")
STYLEGAN = ("bias_act", "upfirdn2d", "filtered_lrelu")  # operators of its tables
TUTORIAL_SIZES = (16, 32, 128)
PICTURES = ("png", "svg", "pdf", "eps", "jpg", "webp")
VARIANTS = """\
what is timed:
  cell             all implementations of the LLTM cell, in tables (the default); at several
                   sizes, unless you set one
  py, cpp, cuda    one implementation of it: plain PyTorch, ATen called from C++, or the CUDA
                   kernels (no -c needed), in the form of the PyTorch tutorial's benchmark
  sequence         recurrent layers over whole sequences, compared with torch.nn's
  stylegan         the StyleGAN operators, compared with plain PyTorch and with a copy
  jit              builds, rebuilds and cached imports of this package
  load             builds of one source by lltm_jit.load, compared with torch's load
"""
EXAMPLES = """\
examples:
  {prog} benchmark                                  the cell, on the CPU
  {prog} benchmark cuda -b 64 -s 512 -r 1000        the tutorial's line, on the GPU
  {prog} benchmark sequence -c --layer LSTM --dtype half
  {prog} benchmark stylegan --json before.json --plot before.png
  {prog} benchmark stylegan --from before.json --plot again.svg
  {prog} benchmark --compare before.json            ratios to an earlier run of the cell

columns of the tables:
  lower is better     all times and their spread (IQR: the middle half); ratio: our time over
                      theirs; of LLTM: a layer's time over that of our LLTM layer
  higher is better    speed-up: how many times as fast as the first row; GFLOP/s; GB/s; share and
                      of copy: how close we come to the floor, and to a copy of the same bytes
  goal                the ratio that this project aims for; at or below it is good
  floor               a lower bound: on a GPU computed for an H200, on a CPU the time of the matrix
                      products at this machine's peak
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
    _cell.add_sizes(parser, TUTORIAL_SIZES)
    parser.add_argument(
        "--dtype",
        choices=list(DTYPES),
        help="element type (default: float; for sequence and stylegan, several)",
    )
    parser.add_argument("-d", "--double", action="store_true", help="the same as --dtype double")
    line = parser.add_argument_group("py, cpp, cuda")
    line.add_argument(
        "-r",
        "--runs",
        type=_cell.positive,
        default=100,
        metavar="N",
        help="number of calls (default: 100)",
    )
    line.add_argument(
        "--scale", choices=list(SCALES), default="us", help="unit of the times (default: us)"
    )
    tables = parser.add_argument_group("cell, sequence, stylegan")
    tables.add_argument(
        "--seconds",
        type=seconds,
        default=0.3,
        metavar="S",
        help="measure each figure for S seconds (default: 0.3)",
    )
    tables.add_argument("--json", type=new_file, metavar="FILE", help="write the results to FILE")
    tables.add_argument(
        "--plot",
        type=picture,
        metavar="FILE",
        help=f"plot the results, as {', '.join(PICTURES)}; cell: at six sizes, unless you set one",
    )
    tables.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="FILE",
        help="measure nothing: show or plot the results that --json wrote to FILE",
    )
    cell = parser.add_argument_group("cell, jit")
    cell.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="show ratios to the results in FILE (cell only)",
    )
    cell.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="compare with the LLTM cell whose C++ and CUDA sources are in DIR",
    )
    cell.add_argument(
        "--define",
        action="append",
        default=[],
        metavar="MACRO",
        help="macro to define for DIR's C++ files; can be repeated",
    )
    sequence = parser.add_argument_group("sequence")
    sequence.add_argument("--layer", choices=LAYERS, help="one layer (default: all three)")
    sequence.add_argument(
        "--steps", type=_cell.positive, metavar="N", help="length of a sequence (default: 256)"
    )
    stylegan = parser.add_argument_group("stylegan")
    stylegan.add_argument("--only", choices=STYLEGAN, help="one operator (default: all three)")
    stylegan.add_argument(
        "--shape",
        type=_cell.positive,
        nargs=4,
        metavar=("N", "C", "H", "W"),
        help="shape of the input (default: a large one, and on a GPU also a small one)",
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
