"""What the commands about the LLTM cell share: the sizes and the device, from flags."""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lltm_jit import functional, native
from lltm_jit.jit import ToolchainError, detect
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

CHECK_SIZES = (3, 17, 5)  # batch, input, hidden of the tutorial's checks: small and all different
TUTORIAL_SIZES = (16, 32, 128)  # the sizes of the tutorial's benchmark
DTYPES = {name: getattr(torch, name) for name in ("half", "bfloat16", "float", "double")}

# The PyTorch tutorial's names for its variants -> the names of the implementations here.
VARIANTS = {"py": "reference", "cpp": "aten", "cuda": "fused"}


def add_variant(parser: argparse.ArgumentParser) -> None:
    """Add the argument for one of :data:`VARIANTS`."""
    about = "the LLTM cell in plain PyTorch, in ATen called from C++, or in CUDA (needs no -c)"
    parser.add_argument("variant", choices=list(VARIANTS), help=about)


def add_sizes(parser: argparse.ArgumentParser, defaults: tuple[object, object, object]) -> None:
    """Add the flags for the sizes that have a default, and the flag for the device."""
    sizes = parser.add_argument_group("sizes and device")
    flags = ("-b --batch-size", "-f --features", "-s --state-size")
    what = ("batch size", "input features", "hidden units")
    for names, words, default in zip(flags, what, defaults, strict=True):
        if default is not None:
            about = f"{words} (default: {default})"
            sizes.add_argument(*names.split(), type=positive, metavar="N", help=about)
    add_device(sizes)


def add_device(parser: argparse._ActionsContainer) -> None:
    about = "run on the GPU (default: on the CPU)"
    parser.add_argument("-c", "--cuda", action="store_true", help=about)


def add_dtype(parser: argparse.ArgumentParser, default: str | None, about: str) -> None:
    """Add the flags for the element type."""
    add, same = parser.add_argument, "the same as --dtype double"
    add("--dtype", choices=DTYPES, default=default, help=about)
    add("-d", "--double", dest="dtype", action="store_const", const="double", help=same)


def sizes(args: argparse.Namespace, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    """Batch, input and hidden size: the given ones, else those of `defaults`."""
    batch, features, units = defaults
    return args.batch_size or batch, args.features or features, args.state_size or units


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, but got {text!r}")
    return int(text)


def operands(sizes: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """input, weights, bias, old_h, old_cell, each requiring grad; the same at every call."""
    generator = torch.Generator().manual_seed(0)
    batch, features, units = sizes
    scale = units**-0.5  # the module initialises its parameters like this

    def draw(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(device, dtype)

    weights, bias = (3 * units, units + features), (3 * units,)
    tensors = [draw(batch, features), draw(*weights) * scale, draw(*bias) * scale]
    tensors += [draw(batch, units), draw(batch, units)]
    return [tensor.requires_grad_() for tensor in tensors]


def implementation(impl: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """One of our implementations; for the reference, plain PyTorch without argument checks."""
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
        missing = detect().cuda_missing
        raise ToolchainError(f"expected CUDA kernels, but the build has none: {missing}")
    return torch.device("cuda")
