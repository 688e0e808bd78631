"""``benchmark {py,cpp,cuda}``: times of the LLTM cell, as the PyTorch tutorial prints them.

Everything else that is measured lives in ``benchmarks/``, which a checkout has.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lltm_jit.cli import lltm
from lltm_jit.jit.user.errors import LltmJitError

SCALES = {"s": 1, "ms": 1e3, "us": 1e6}
EXAMPLES = """\
examples:
  {prog} benchmark py                               plain PyTorch, on the CPU
  {prog} benchmark cpp -d --scale ms                ATen called from C++, in float64
  {prog} benchmark cuda -b 64 -s 512 -r 1000        the CUDA kernels (no -c needed)

It prints the least and the mean time of a call: `Forward: 29.411/31.062 us | Backward ...`.
In the root of a checkout, `python -m benchmarks -h` shows what else can be measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    lltm.add_variant(parser)
    lltm.add_sizes(parser, lltm.TUTORIAL_SIZES)
    lltm.add_dtype(parser, "float", "element type")
    about = "number of calls (default: 100)"
    add("-r", "--runs", type=lltm.positive, default=100, metavar="N", help=about)
    add("--scale", choices=list(SCALES), default="us", help="unit of the times (default: us)")


def refuse_moved(words: Sequence[str]) -> None:
    """Say how to write what is not the tutorial's benchmark."""
    if not {*lltm.VARIANTS, "-h", "--help"} & {*words}:
        moved = shlex.join(["python", "-m", "benchmarks", *words])
        raise LltmJitError(
            f"benchmark times the LLTM cell as py, cpp or cuda; for everything else, write "
            f"`{moved}` in the root of a checkout"
        )


def run(args: argparse.Namespace) -> int:
    device = lltm.device(args.cuda or args.variant == "cuda")
    cell = lltm.implementation(lltm.VARIANTS[args.variant])
    sizes = lltm.sizes(args, lltm.TUTORIAL_SIZES)
    operands = lltm.operands(sizes, lltm.DTYPES[args.dtype], device)
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
    print(f"Forward: {figures(forward, args.scale)} | Backward {figures(backward, args.scale)}")
    return 0


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


def figures(seconds: list[float], unit: str) -> str:
    best, mean = min(seconds), sum(seconds) / len(seconds)
    return f"{best * SCALES[unit]:.3f}/{mean * SCALES[unit]:.3f} {unit}"
