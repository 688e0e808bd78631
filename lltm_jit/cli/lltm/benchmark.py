"""``benchmark``: time the LLTM cell, as the PyTorch tutorial does.

examples:
  python -m lltm_jit benchmark py                               plain PyTorch, on the CPU
  python -m lltm_jit benchmark cpp -d --scale ms                ATen called from C++, in float64
  python -m lltm_jit benchmark cuda -b 64 -s 512 -r 1000        the CUDA kernels (no -c needed)

It prints the least and the mean time of a call: `Forward: 29.411/31.062 us | Backward ...`.
In the root of a checkout, `python -m benchmarks -h` shows what else can be measured.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from lltm_jit.cli import lltm

SCALES = {"s": 1, "ms": 1e3, "us": 1e6}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, about = parser.add_argument, "number of calls (default: 100)"
    lltm.add_variant(parser)
    lltm.add_sizes(parser, lltm.TUTORIAL_SIZES)
    lltm.add_dtype(parser, "float", "element type")
    add("-r", "--runs", type=lltm.positive, default=100, metavar="N", help=about)
    add("--scale", choices=list(SCALES), default="us", help="unit of the times (default: us)")


def run(args: argparse.Namespace) -> int:
    device = lltm.device(args.cuda or args.variant == "cuda")
    cell = lltm.implementation(lltm.VARIANTS[args.variant])
    sizes = lltm.sizes(args, lltm.TUTORIAL_SIZES)
    operands = lltm.operands(sizes, lltm.DTYPES[args.dtype], device)

    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        """The time of a call with its work on the GPU, in the chosen unit, and its result."""
        wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        wait()
        start = time.perf_counter()
        result = function()
        wait()
        return (time.perf_counter() - start) * SCALES[args.scale], result

    forward, backward = [], []
    for _ in range(3 + args.runs):
        for operand in operands:
            operand.grad = None
        took, (new_h, new_cell) = timed(lambda: cell(*operands))
        forward.append(took)
        backward.append(timed((new_h.sum() + new_cell.sum()).backward)[0])
    # The first three calls warm up, and do not count.
    figures = [
        f"{min(each[3:]):.3f}/{sum(each[3:]) / args.runs:.3f}" for each in (forward, backward)
    ]
    print("Forward: {} {scale} | Backward {} {scale}".format(*figures, scale=args.scale))
    return 0
