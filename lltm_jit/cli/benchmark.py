"""``benchmark {py,cpp,cuda}``: the tutorial's timing of one LLTM cell, forward and backward."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from . import _cell

SCALES = {"s": 1, "ms": 1e3, "us": 1e6}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variant", choices=_cell.VARIANTS, help="plain PyTorch, ATen from C++, or the CUDA kernels"
    )
    _cell.add_sizes(parser, batch_size=16, features=32, state_size=128)
    parser.add_argument("-r", "--runs", type=_cell.positive, default=100, help="%(default)s")
    parser.add_argument("--scale", choices=SCALES, default="us", help="unit, %(default)s")
    parser.add_argument("-d", "--double", action="store_true", help="float64 in place of float32")


def run(args: argparse.Namespace) -> int:
    device = _cell.device(args.cuda or args.variant == "cuda")
    dtype = torch.float64 if args.double else torch.float32
    lltm_cell = _cell.functional().lltm_cell
    operands = _cell.inputs(args, device, dtype)
    impl = _cell.VARIANTS[args.variant]
    forward, backward = [], []
    for warming_up in [True] * 3 + [False] * args.runs:
        for operand in operands:
            operand.grad = None
        seconds, (new_h, new_cell) = timed(lambda: lltm_cell(*operands, impl=impl), device)
        loss = new_h.sum() + new_cell.sum()
        backward_seconds, _ = timed(loss.backward, device)
        if not warming_up:
            forward.append(seconds)
            backward.append(backward_seconds)
    print(f"Forward: {_figures(forward, args.scale)} | Backward {_figures(backward, args.scale)}")
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


def _figures(seconds: list[float], unit: str) -> str:
    best, mean = min(seconds), sum(seconds) / len(seconds)
    return f"{best * SCALES[unit]:.3f}/{mean * SCALES[unit]:.3f} {unit}"
