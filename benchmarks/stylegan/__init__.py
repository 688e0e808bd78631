"""``stylegan``: the StyleGAN operators beside plain PyTorch, a copy, and float64."""

import argparse
from collections.abc import Iterator

from lltm_jit import native
from lltm_jit.cli import lltm

from .. import options
from ..shared.table import Row

TITLE, WIDTH = "StyleGAN operators", 39
OPERATORS = ("bias_act", "upfirdn2d", "filtered_lrelu")


def add_options(parser: argparse.ArgumentParser) -> None:
    lltm.add_device(parser)
    options.add_measuring(parser)
    parser.add_argument("--only", choices=OPERATORS, help="one operator (default: all three)")
    parser.add_argument(
        "--shape",
        type=lltm.positive,
        nargs=4,
        metavar=("N", "C", "H", "W"),
        help="shape of the input (default: a large one, and on a GPU also a small one)",
    )


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    device = lltm.device(args.cuda, "stylegan")  # refused before anything is built
    native.load("stylegan")
    from .operators import measure_all  # it imports the operators

    operators = [args.only] if args.only else OPERATORS
    shape = tuple(args.shape) if args.shape else None
    yield from measure_all(operators, options.dtype(args), shape, device, args.seconds)
