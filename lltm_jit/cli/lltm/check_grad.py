"""``check-grad``: compare gradients with finite differences, in float64.

In float32 the difference of two nearby values of a function loses so many digits that even a
correct gradient fails, ours as well as PyTorch's.

examples:
  python -m lltm_jit check-grad cpp           the LLTM cell in ATen, called from C++
  python -m lltm_jit check-grad cuda          the CUDA kernels

`grad_check`, the PyTorch tutorial's name for this command, works too.
"""

import argparse
from functools import partial

import torch
from torch.autograd import gradcheck

from lltm_jit import functional
from lltm_jit.cli import lltm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lltm.add_variant(parser)
    lltm.add_sizes(parser, lltm.CHECK_SIZES)


def run(args: argparse.Namespace) -> int:
    device = lltm.device(args.cuda or args.variant == "cuda")
    operands = lltm.operands(lltm.sizes(args, lltm.CHECK_SIZES), torch.float64, device)
    try:
        gradcheck(partial(functional.lltm_cell, impl=lltm.VARIANTS[args.variant]), operands)
    except RuntimeError as error:  # GradcheckError is one, as is an operator's error
        print(f"FAILED\n{error}")
        return 1
    print("Ok")
    return 0
