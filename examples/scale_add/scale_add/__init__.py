"""scale_add: ``scale * x + y``, elementwise, in C++ and CUDA that compile when this is imported."""

from __future__ import annotations

from pathlib import Path

import lltm_jit
import torch
from lltm_jit.jit import default_cflags, default_cuda_cflags, detect
from torch import Tensor

# The first import compiles; later ones take the build from the cache, until a source changes.
tools = detect()  # tools.cuda: whether nvcc is here, and torch has CUDA
module = lltm_jit.load(
    "scale_add_kernels",
    Path(__file__).parent / "kernels",
    extra_cflags=default_cflags(tools, with_cuda=tools.cuda),
    extra_cuda_cflags=default_cuda_cflags(),
    extra_include_paths=[lltm_jit.include_path()],
    with_cuda=tools.cuda,
)
library = torch.library.Library("scale_add", "DEF")
library.define("scale_add(Tensor x, Tensor y, float scale) -> Tensor")
module.register_ops()


def scale_add(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return ``scale * x + y``.

    Args:
        x: half, bfloat16, float or double tensor of any shape, on the CPU or a GPU.
        y: tensor of the shape, dtype and device of ``x``.
        scale: a number.

    Returns:
        Tensor of the shape, dtype and device of ``x``, differentiable any number of times.

    Raises:
        RuntimeError: a dtype, shape or device does not fit; the message names both values.
    """
    return torch.ops.scale_add.scale_add(x, y, scale)


def reload() -> None:
    """After an edit of a file in kernels/: compile what depends on it, and use it from now on."""
    lltm_jit.reload(module)
