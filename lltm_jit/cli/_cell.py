"""What the commands about the LLTM cell share: the sizes and the device, from flags."""

from __future__ import annotations

import argparse
from types import ModuleType

import torch

from lltm_jit.jit import toolchain
from lltm_jit.jit.errors import ToolchainError

CHECK_SIZES = (3, 17, 5)  # batch, input, hidden of the tutorial's checks: small, no two alike

# The PyTorch tutorial's names for its variants -> the names of the implementations here.
VARIANTS = {"py": "reference", "cpp": "aten", "cuda": "fused"}


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the sizes and the one for the device."""
    parser.add_argument("-b", "--batch-size", type=positive)
    parser.add_argument("-f", "--features", type=positive, help="input size")
    parser.add_argument("-s", "--state-size", type=positive, help="hidden size")
    parser.add_argument("-c", "--cuda", action="store_true", help="run on the GPU")


def sizes(args: argparse.Namespace, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    """Batch, input and hidden size as given, and from `defaults` where not."""
    given = (args.batch_size, args.features, args.state_size)
    batch_size, input_size, hidden_size = map(
        lambda size, default: size or default, given, defaults
    )
    return batch_size, input_size, hidden_size


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, but got {value}")
    return value


def functional(family: str = "rnn") -> ModuleType:
    """The functions of the package, those of a family loaded (and built, where they are not)."""
    from lltm_jit import native

    native.load(family)
    from lltm_jit import functional

    return functional


def device(cuda: bool, family: str = "rnn") -> torch.device:
    """The device to run a family's operators on.

    Raises:
        ToolchainError: a GPU was asked for and torch sees none, or the build has no CUDA kernels.
    """
    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "torch sees no GPU" if torch.version.cuda else "this torch is built without CUDA"
        raise ToolchainError(f"expected a CUDA device, but {reason}")
    from lltm_jit import native

    if native.load(family).info.cuda_version is None:
        missing = toolchain.detect().cuda_missing
        raise ToolchainError(f"expected CUDA kernels, but the build has none: {missing}")
    return torch.device("cuda")
