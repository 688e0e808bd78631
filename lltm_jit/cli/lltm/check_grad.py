"""``check-grad``: compare gradients with finite differences, in float64.

``check-grad --table`` shows why it is done in float64: in float32 the difference of two nearby
values of a function loses so many digits that a correct gradient fails, ours and PyTorch's alike.

examples:
  python -m lltm_jit check-grad cpp           the LLTM cell in ATen, called from C++
  python -m lltm_jit check-grad cuda          the CUDA kernels
  python -m lltm_jit check-grad --table       why the check uses float64

`grad_check`, the PyTorch tutorial's name for this command, works too.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch.autograd import gradcheck

from lltm_jit import functional, native
from lltm_jit.cli import lltm
from lltm_jit.jit.loading.build import in_columns

TABLE = [(torch.float32, 1e-3), (torch.float32, 1e-4), (torch.float64, 1e-4), (torch.float64, 1e-6)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lltm.add_variant(parser, nargs="?")
    lltm.add_sizes(parser, lltm.CHECK_SIZES)
    about = "check sigmoid instead, in float32 and float64 and with several step sizes"
    parser.add_argument("--table", action="store_true", help=about)
    parser.set_defaults(usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.table:
        return print_table(args)
    if args.variant is None:
        args.usage_error("expected a variant (py, cpp or cuda) or --table, but got neither")
    device = lltm.device(args.cuda or args.variant == "cuda")
    native.load("rnn")
    operands = lltm.operands(lltm.sizes(args, lltm.CHECK_SIZES), torch.float64, device)
    try:
        gradcheck(partial(functional.lltm_cell, impl=lltm.VARIANTS[args.variant]), operands)
    except RuntimeError as error:  # GradcheckError is one, and so is an error of the operator
        print(f"FAILED\n{error}")
        return 1
    print("Ok")
    return 0


def print_table(args: argparse.Namespace) -> int:
    """Print gradcheck's verdicts; fails when ours and torch's differ, or float64 does not pass."""
    device = lltm.device(args.cuda, "basic")
    native.load("basic")
    rows, good = [["dtype", "eps", "lltm_jit.sigmoid", "torch.sigmoid"]], True
    for dtype, eps in TABLE:
        ours, theirs = (passes(f, dtype, eps, device) for f in (functional.sigmoid, torch.sigmoid))
        words = ["passes" if passed else "fails" for passed in (ours, theirs)]
        rows.append([str(dtype).removeprefix("torch."), f"{eps:.0e}", *words])
        good = good and ours == theirs and (ours or dtype is not torch.float64)
    print(in_columns(rows))
    return 0 if good else 1


def passes(function: Callable, dtype: torch.dtype, eps: float, device: torch.device) -> bool:
    # The same values for every row, where the slope is steep: gradcheck's tolerance is relative.
    x = torch.linspace(-2, 2, 200, dtype=dtype, device=device).requires_grad_()
    with warnings.catch_warnings():
        # That float32 is not precise enough: that is what the table shows.
        warnings.simplefilter("ignore", UserWarning)
        return gradcheck(function, x, eps=eps, raise_exception=False)
