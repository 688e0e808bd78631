"""``check {forward,backward} ...``: every implementation of the LLTM cell against plain PyTorch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from lltm_jit import functional, native
from lltm_jit.cli import lltm

INPUT_NAMES = ("input", "weights", "bias", "old_h", "old_cell")
OUTPUT_NAMES = ("new_h", "new_cell")


EXAMPLES = """\
examples:
  {prog} check forward backward     both, on the CPU
  {prog} check backward -c          the CUDA kernels too
  {prog} check forward -b 64 -s 512 -v"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "direction",
        choices=["forward", "backward"],
        nargs="+",
        help="compare the new state, or the gradients of all inputs, in float64",
    )
    lltm.add_sizes(parser, lltm.CHECK_SIZES)
    add("-v", "--verbose", action="store_true", help="also print the values")


def run(args: argparse.Namespace) -> int:
    device = lltm.device(args.cuda)  # fails here, before anything is built
    native.load("rnn")
    sizes = lltm.sizes(args, lltm.CHECK_SIZES)
    operands = lltm.operands(sizes, torch.float64, torch.device("cpu"))
    grad_outputs = [torch.randn_like(operands[3]) for _ in OUTPUT_NAMES]
    opponents = [("C++", "aten", "cpu"), ("fused CPU", "fused", "cpu")]
    if args.cuda:
        opponents += [("C++ on CUDA", "aten", device), ("CUDA", "fused", device)]

    agree = True
    for direction in args.direction:
        compute = forward if direction == "forward" else backward
        names = OUTPUT_NAMES if direction == "forward" else INPUT_NAMES
        baseline = compute(operands, grad_outputs, "reference", "cpu")
        for title, impl, where in opponents:
            print(f"{direction.capitalize()}: Baseline (Python) vs. {title} ... ", end="")
            values = compute(operands, grad_outputs, impl, where)
            difference = compare(names, baseline, values, args.verbose)
            print(difference or "Ok")
            agree = agree and not difference
    return 0 if agree else 1


def forward(
    operands: Sequence[Tensor], _: Sequence[Tensor], impl: str, device: str
) -> Sequence[Tensor]:
    """new_h and new_cell, computed on `device`."""
    cell = partial(functional.lltm_cell, impl=impl)
    return cell(*(operand.to(device) for operand in operands))


def backward(
    operands: Sequence[Tensor], grad_outputs: Sequence[Tensor], impl: str, device: str
) -> Sequence[Tensor]:
    """The gradients of all operands, computed on `device`."""
    outputs = forward(operands, grad_outputs, impl, device)
    return torch.autograd.grad(outputs, operands, [grad.to(device) for grad in grad_outputs])


def compare(
    names: Sequence[str], expected: Sequence[Tensor], actual: Sequence[Tensor], verbose: bool
) -> str:
    """What differs, as text; empty when nothing does."""
    for name, first, second in zip(names, expected, actual, strict=True):
        first, second = first.detach(), second.detach().cpu()
        if verbose:
            print(f"\n{name}, expected:\n{first}\n{name}, computed:\n{second}\n{name}, difference:")
            print(second - first)
        try:
            torch.testing.assert_close(second, first, rtol=1e-9, atol=1e-11)
        except AssertionError as error:
            return f"FAILED\n{name}: {error}"
    return ""
