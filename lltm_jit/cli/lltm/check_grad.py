"""``check-grad {py,cpp,cuda}``: gradients of the LLTM cell against finite differences.

``check-grad --table`` shows why it is done in float64: in float32 the difference of two nearby
values of a function loses so many digits that a correct gradient fails, ours and PyTorch's alike.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch.autograd import gradcheck

from lltm_jit import functional, native
from lltm_jit.cli import lltm

TABLE = [(torch.float32, 1e-3), (torch.float32, 1e-4), (torch.float64, 1e-4), (torch.float64, 1e-6)]


EXAMPLES = """\
examples:
  {prog} check-grad cpp           the LLTM cell in ATen, called from C++
  {prog} check-grad cuda          the CUDA kernels
  {prog} check-grad --table       why the check uses float64

`grad_check`, the PyTorch tutorial's name for this command, works too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lltm.add_variant(parser, nargs="?")
    lltm.add_sizes(parser, lltm.CHECK_SIZES)
    parser.add_argument(
        "--table",
        action="store_true",
        help="check sigmoid instead, in float32 and float64 and with several step sizes",
    )
    parser.set_defaults(usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.table:
        return print_table(args)
    if args.variant is None:
        args.usage_error("expected a variant (py, cpp or cuda) or --table, but got neither")
    device = lltm.device(args.cuda or args.variant == "cuda")
    native.load("rnn")
    operands = lltm.operands(lltm.sizes(args, lltm.CHECK_SIZES), torch.float64, device)
    impl = lltm.VARIANTS[args.variant]
    try:
        gradcheck(partial(functional.lltm_cell, impl=impl), operands)
    except RuntimeError as error:  # GradcheckError is one, and so is an error of the operator
        print(f"FAILED\n{error}")
        return 1
    print("Ok")
    return 0


def print_table(args: argparse.Namespace) -> int:
    """Print gradcheck's verdicts; fails when ours and torch's differ, or float64 does not pass."""
    device = lltm.device(args.cuda, "basic")
    native.load("basic")
    compared, good = (functional.sigmoid, torch.sigmoid), True
    print(f"{'dtype':<10}{'eps':<8}{'lltm_jit.sigmoid':<18}torch.sigmoid")
    for dtype, eps in TABLE:
        passed = [passes(function, dtype, eps, device) for function in compared]
        words = ["passes" if result else "fails" for result in passed]
        print(f"{str(dtype).removeprefix('torch.'):<10}{eps:<8.0e}{words[0]:<18}{words[1]}")
        good = good and passed[0] == passed[1] and (passed[0] or dtype is not torch.float64)
    return 0 if good else 1


def passes(function: Callable, dtype: torch.dtype, eps: float, device: torch.device) -> bool:
    # The same values for every row, where the slope is steep: gradcheck's tolerance is relative.
    x = torch.linspace(-2, 2, 200, dtype=dtype, device=device).requires_grad_()
    with warnings.catch_warnings():
        # That float32 is not precise enough: that is what the table shows.
        warnings.simplefilter("ignore", UserWarning)
        return gradcheck(function, x, eps=eps, raise_exception=False)
