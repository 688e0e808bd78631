"""unit_rows: rows divided by their lengths, in C++ and CUDA that compile when this is imported."""

from __future__ import annotations

from pathlib import Path

import lltm_jit
import torch
from lltm_jit.jit import default_cflags, default_cuda_cflags, detect
from torch import Tensor

# The first import compiles; later ones take the build from the cache, until a source changes.
tools = detect()  # tools.cuda: whether nvcc is here, and torch has CUDA
module = lltm_jit.load(
    "unit_rows_kernels",
    Path(__file__).parent / "kernels",
    extra_cflags=default_cflags(tools, with_cuda=tools.cuda),
    extra_cuda_cflags=default_cuda_cflags(),
    extra_include_paths=[lltm_jit.include_path()],
    with_cuda=tools.cuda,
)
library = torch.library.Library("unit_rows", "DEF")
library.define("unit_rows(Tensor x, float eps) -> Tensor")
module.register_ops()


def unit_rows(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Return ``x / sqrt(sum(x * x) + eps)``, with the sum along the last dimension.

    Args:
        x: half, bfloat16, float or double tensor of any shape but ``[]``, on the CPU or a GPU.
        eps: a number above 0.

    Returns:
        Contiguous tensor of the shape, dtype and device of ``x``, differentiable any number of
        times.

    Raises:
        RuntimeError: if ``x`` has another dtype, or no dimension.
    """
    return torch.ops.unit_rows.unit_rows(x, eps)


def reload() -> None:
    """After an edit of a file in kernels/: compile what depends on it, and use it from now on."""
    lltm_jit.reload(module)
