"""Options that several benchmarks have."""

import argparse
import math
from pathlib import Path

import torch

from lltm_jit.cli import lltm

from .shared import plot

PICTURES = ("png", "svg", "pdf", "eps", "jpg", "webp")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Options for the element type, and the time of each figure."""
    lltm.add_dtype(parser, None, "element type (default: float, or several)")
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=0.3,
        metavar="S",
        help="measure each figure for S seconds (default: 0.3)",
    )


def add_opponent(parser: argparse.ArgumentParser) -> None:
    """An LLTM written elsewhere, to compare with."""
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="compare with the LLTM cell whose C++ and CUDA sources are in DIR",
    )
    parser.add_argument(
        "--define",
        action="append",
        default=[],
        metavar="MACRO",
        help="macro to define for DIR's C++ files; can be repeated",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Options to save, plot and compare the results."""
    output = parser.add_argument_group("results")
    output.add_argument("--json", type=new_file, metavar="FILE", help="write them to FILE")
    output.add_argument(
        "--plot", type=picture, metavar="FILE", help=f"plot them, as {', '.join(PICTURES)}"
    )
    output.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="FILE",
        help="measure nothing: show or plot what --json wrote to FILE",
    )
    output.add_argument(
        "--compare", type=Path, metavar="FILE", help="show ratios to what --json wrote to FILE"
    )


def dtype(args: argparse.Namespace) -> torch.dtype | None:
    """The element type that was asked for."""
    return lltm.DTYPES[args.dtype] if args.dtype else None


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
    if not plot.possible():
        raise argparse.ArgumentTypeError("needs matplotlib: `python -m pip install matplotlib`")
    return path


def new_file(text: str) -> Path:
    """A path to write to, refused before the measuring where its directory is missing."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    return path
