"""What the commands about the LLTM cell share: the sizes and the device, from flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lltm_jit import functional, native
from lltm_jit.jit.machine import toolchain
from lltm_jit.jit.user.errors import ToolchainError
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

CHECK_SIZES = (3, 17, 5)  # batch, input, hidden of the tutorial's checks: small, no two alike
TUTORIAL_SIZES = (16, 32, 128)  # those of its benchmark
DTYPES = {name: getattr(torch, name) for name in ("half", "bfloat16", "float", "double")}

# The PyTorch tutorial's names for its variants -> the names of the implementations here.
VARIANTS = {"py": "reference", "cpp": "aten", "cuda": "fused"}


def add_variant(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument for one of :data:`VARIANTS`."""
    about = "the LLTM cell in plain PyTorch, in ATen called from C++, or in CUDA (needs no -c)"
    parser.add_argument("variant", choices=list(VARIANTS), nargs=nargs, help=about)


def add_sizes(parser: argparse.ArgumentParser, defaults: tuple[object, object, object]) -> None:
    """Add the flags for the sizes and the one for the device; the help tells these defaults.

    What has no default has no flag.
    """
    batch_size, input_size, hidden_size = defaults
    sizes = parser.add_argument_group("sizes and device")
    for flags, what, default in (
        (("-b", "--batch-size"), "batch size", batch_size),
        (("-f", "--features"), "input features", input_size),
        (("-s", "--state-size"), "hidden units", hidden_size),
    ):
        if default is not None:
            about = f"{what} (default: {default})"
            sizes.add_argument(*flags, type=positive, metavar="N", help=about)
    add_device(sizes)


def add_device(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-c", "--cuda", action="store_true", help="run on the GPU (default: on the CPU)"
    )


def add_dtype(parser: argparse.ArgumentParser, default: str | None, about: str) -> None:
    """Add the flags for the element type."""
    add, same = parser.add_argument, "the same as --dtype double"
    add("--dtype", choices=DTYPES, default=default, help=about)
    add("-d", "--double", dest="dtype", action="store_const", const="double", help=same)


def sizes(args: argparse.Namespace, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    """Batch, input and hidden size as given, and from `defaults` where not."""
    batch, features, units = defaults
    return args.batch_size or batch, args.features or features, args.state_size or units


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, but got {text!r}")
    return int(text)


def operands(sizes: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """input, weights, bias, old_h, old_cell, each requiring grad; the same at every call."""
    generator = torch.Generator().manual_seed(0)
    batch_size, input_size, hidden_size = sizes
    scale = hidden_size**-0.5  # as the module initialises its parameters

    def draw(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(device, dtype)

    tensors = [
        draw(batch_size, input_size),
        draw(3 * hidden_size, hidden_size + input_size) * scale,
        draw(3 * hidden_size) * scale,
        draw(batch_size, hidden_size),
        draw(batch_size, hidden_size),
    ]
    return [tensor.requires_grad_() for tensor in tensors]


def implementation(impl: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """One of our implementations; the reference as plain PyTorch, without the checks before it."""
    if impl == "reference":  # needs no build
        return lltm_cell_reference
    native.load("rnn")
    return partial(functional.lltm_cell, impl=impl)


def device(cuda: bool, family: str = "rnn") -> torch.device:
    """The device to run a family's operators on."""
    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "torch sees no GPU" if torch.version.cuda else "this torch is built without CUDA"
        raise ToolchainError(f"expected a CUDA device, but {reason}")
    if native.load(family).info.cuda_version is None:
        missing = toolchain.detect().cuda_missing
        raise ToolchainError(f"expected CUDA kernels, but the build has none: {missing}")
    return torch.device("cuda")
