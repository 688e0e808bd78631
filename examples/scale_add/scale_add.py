"""scale_add: ``a * x + y``, elementwise, in C++ and CUDA that compile when this is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lltm_jit
from lltm_jit.jit import detect

KERNELS = Path(__file__).parent / "kernels"

# The first import compiles; later ones take the build from the cache, until a source changes.
cuda = detect().cuda  # whether nvcc is here, and torch has CUDA
module = lltm_jit.load(
    "scale_add_kernels",
    [KERNELS / "scale_add.cpp", *([KERNELS / "scale_add_cuda.cu"] if cuda else [])],
    extra_cflags=["-DWITH_CUDA"] if cuda else [],
    extra_include_paths=[KERNELS],
)


class _ScaleAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, a: float) -> Tensor:
        ctx.a = a
        return module.forward(x, y, a)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return ctx.a * grad, grad, None


def scale_add(x: Tensor, y: Tensor, a: float) -> Tensor:
    """Return ``a * x + y``.

    Args:
        x: float or double tensor of any shape, on the CPU or a GPU.
        y: tensor of the shape, dtype and device of ``x``.
        a: a number.

    Raises:
        RuntimeError: a dtype, shape or device does not fit; the message names both values.
    """
    return _ScaleAdd.apply(x, y, a)


def reload() -> None:
    """After an edit of a file in kernels/: compile what depends on it, and use it from now on."""
    global module
    module = lltm_jit.reload(module)
