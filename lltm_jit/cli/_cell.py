"""What the commands about the LLTM cell share: the sizes' flags, the device, the inputs."""

from __future__ import annotations

import argparse
from types import ModuleType

import torch
from torch import Tensor

from lltm_jit.jit.errors import ToolchainError

# The PyTorch tutorial's names for its variants -> the names of the implementations here.
VARIANTS = {"py": "reference", "cpp": "aten", "cuda": "fused"}


def add_sizes(
    parser: argparse.ArgumentParser, batch_size: int, features: int, state_size: int
) -> None:
    """Add the flags for the sizes, with these defaults, and the one for the device."""
    parser.add_argument("-b", "--batch-size", type=positive, default=batch_size, help="%(default)s")
    parser.add_argument(
        "-f", "--features", type=positive, default=features, help="input size, %(default)s"
    )
    parser.add_argument(
        "-s", "--state-size", type=positive, default=state_size, help="hidden size, %(default)s"
    )
    parser.add_argument("-c", "--cuda", action="store_true", help="run on the GPU")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, but got {value}")
    return value


def functional() -> ModuleType:
    """The functions of the package, with the extension loaded (and built, where it is not)."""
    from lltm_jit import native

    native.load()
    from lltm_jit import functional

    return functional


def device(cuda: bool) -> torch.device:
    """The device to run on.

    Raises:
        ToolchainError: a GPU was asked for and torch sees none, or the build has no CUDA kernels.
    """
    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "torch sees no GPU" if torch.version.cuda else "this torch is built without CUDA"
        raise ToolchainError(f"expected a CUDA device, but {reason}")
    return torch.device("cuda")


def inputs(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Random input, weights, bias, old_h, old_cell of `lltm_cell`, each requiring grad."""
    batch_size, features, state_size = args.batch_size, args.features, args.state_size
    shapes = [
        (batch_size, features),
        (3 * state_size, state_size + features),
        (3 * state_size,),
        (batch_size, state_size),
        (batch_size, state_size),
    ]
    # Scaled as the module initialises its parameters, so that gates do not all saturate.
    scales = [1.0, state_size**-0.5, state_size**-0.5, 1.0, 1.0]
    return [
        (torch.randn(shape, dtype=dtype, device=device) * scale).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]
