"""``check``: compare the LLTM cell's implementations with plain PyTorch.

examples:
  python -m lltm_jit check forward backward     both, on the CPU
  python -m lltm_jit check backward -c          the CUDA kernels too
  python -m lltm_jit check forward -b 64 -s 512 -v
"""

import argparse
from functools import partial

import torch
from torch import Tensor

from lltm_jit import functional
from lltm_jit.cli import lltm

INPUTS, OUTPUTS = ("input", "weights", "bias", "old_h", "old_cell"), ("new_h", "new_cell")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, both = parser.add_argument, ["forward", "backward"]
    about = "compare the new state, or the gradients of all inputs, in float64"
    add("direction", choices=both, nargs="+", help=about)
    lltm.add_sizes(parser, lltm.CHECK_SIZES)
    add("-v", "--verbose", action="store_true", help="also print the values")


def run(args: argparse.Namespace) -> int:
    device, cpu = lltm.device(args.cuda), torch.device("cpu")  # fails before anything is built
    sizes = lltm.sizes(args, lltm.CHECK_SIZES)
    operands = lltm.operands(sizes, torch.float64, cpu)
    grad_outputs = [torch.randn_like(operands[3]) for _ in OUTPUTS]

    def compute(direction: str, impl: str, where: torch.device) -> dict[str, Tensor]:
        cell = partial(functional.lltm_cell, impl=impl)
        outputs = cell(*(operand.to(where) for operand in operands))
        if direction == "forward":
            return dict(zip(OUTPUTS, outputs, strict=True))
        grads = torch.autograd.grad(outputs, operands, [grad.to(where) for grad in grad_outputs])
        return dict(zip(INPUTS, grads, strict=True))

    opponents = [("C++", "aten", cpu), ("fused CPU", "fused", cpu)]
    if args.cuda:
        opponents += [("C++ on CUDA", "aten", device), ("CUDA", "fused", device)]
    agree = True
    for direction in args.direction:
        baseline = compute(direction, "reference", cpu)
        for title, impl, where in opponents:
            print(f"{direction.capitalize()}: Baseline (Python) vs. {title} ... ", end="")
            difference = compare(baseline, compute(direction, impl, where), args.verbose)
            print(difference or "Ok")
            agree = agree and not difference
    return 0 if agree else 1


def compare(expected: dict[str, Tensor], actual: dict[str, Tensor], verbose: bool) -> str:
    """The first difference, as text; empty if there is none."""
    for name in expected:
        first, second = expected[name].detach(), actual[name].detach().cpu()
        if verbose:
            print(f"\n{name}, expected:\n{first}\n{name}, computed:\n{second}\n{name}, difference:")
            print(second - first)
        try:
            torch.testing.assert_close(second, first, rtol=1e-9, atol=1e-11)
        except AssertionError as error:
            return f"FAILED\n{name}: {error}"
    return ""
