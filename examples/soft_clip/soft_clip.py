"""soft_clip: ``limit * tanh(x / limit)``, elementwise, by a CUDA kernel without C++ around it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lltm_jit
import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("soft_clip.cu")
TYPES = {
    torch.half: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float: "float",
    torch.double: "double",
}
THREADS = 256  # of a block


@cache
def kernels(dtype: torch.dtype) -> tuple[lltm_jit.Kernel, lltm_jit.Kernel]:
    """The kernels of the function and of its derivative, which the first use compiles."""
    if dtype not in TYPES:
        raise TypeError(f"soft_clip(): expected x to be one of {[*TYPES]}, but got {dtype}")
    names = [f"{name}<{TYPES[dtype]}>" for name in ("soft_clip", "soft_clip_backward")]
    return lltm_jit.kernel(SOURCE, names)


def blocks(*arguments: object) -> int:
    """How many blocks there are for a thread an element, from a kernel's arguments."""
    n = arguments[-2]
    assert isinstance(n, int)
    return (n + THREADS - 1) // THREADS


@torch.library.custom_op("soft_clip::soft_clip", mutates_args=(), device_types="cuda")
def soft_clip(x: Tensor, limit: float) -> Tensor:
    """Return ``limit * tanh(x / limit)``.

    Args:
        x: half, bfloat16, float or double tensor of any shape, on the CPU or a GPU.
        limit: a number.

    Returns:
        Contiguous tensor of the shape, dtype and device of ``x``, differentiable once.
    """
    y, x = empty_like(x), x.contiguous()
    kernels(x.dtype)[0][blocks, THREADS](x, y, x.numel(), limit)
    return y


@torch.library.custom_op("soft_clip::backward", mutates_args=(), device_types="cuda")
def backward(gradient: Tensor, x: Tensor, limit: float) -> Tensor:
    """Return the gradient of ``x``."""
    result, gradient, x = empty_like(x), gradient.contiguous(), x.contiguous()
    kernels(x.dtype)[1][blocks, THREADS](gradient, x, result, x.numel(), limit)
    return result


def empty_like(x: Tensor) -> Tensor:
    """A contiguous tensor for a result."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def tanh(x: Tensor, limit: float) -> Tensor:
    """Its value, computed like that of a kernel."""
    return torch.tanh(x.contiguous().to(torch.promote_types(x.dtype, torch.float)) / limit)


# The formulas in operations of torch, for the CPU.
@soft_clip.register_kernel("cpu")
def _(x: Tensor, limit: float) -> Tensor:
    return (limit * tanh(x, limit)).to(x.dtype)


@backward.register_kernel("cpu")
def _(gradient: Tensor, x: Tensor, limit: float) -> Tensor:
    return (gradient.contiguous() * (1 - tanh(x, limit) ** 2)).to(x.dtype)


# What torch.compile knows of the results: shape, dtype and strides.
@soft_clip.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return empty_like(x)


@backward.register_fake
def _(gradient: Tensor, x: Tensor, limit: float) -> Tensor:
    return empty_like(x)


def save(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    """Keep what the derivative needs."""
    x, ctx.limit = inputs
    ctx.save_for_backward(x)


def differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    """The gradients of x and of limit, which has none."""
    return backward(gradient, *ctx.saved_tensors, ctx.limit), None


soft_clip.register_autograd(differentiate, setup_context=save)


def reload() -> None:
    """After an edit of the .cu file: compile it, and use it from now on."""
    kernels.cache_clear()
