"""fma: ``a * b + c``, broadcasting, with derivatives of any order.

This is :func:`torch.addcmul`: one kernel, 16-bit types rounded once, and autograd keeps `a` and `b`
alone. A kernel of ours would move the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lltm_jit.ops._library import refuse_non_tensors


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return ``a * b + c``.

    Args:
        a, b, c: tensors whose shapes broadcast against each other, of any dtypes, on one device.

    Returns:
        Tensor of the broadcast shape and the promoted dtype. Differentiable any number of times; a
        gradient is summed over the dimensions in which its tensor was broadcast.

    Raises:
        RuntimeError: the shapes do not broadcast.
        TypeError: one of them is no tensor.
    """
    try:
        if torch.is_autocast_enabled("cuda"):  # whose rule for addcmul refuses half or bfloat16
            with torch.autocast("cuda", enabled=False):
                return torch.addcmul(c, a, b)
        return torch.addcmul(c, a, b)
    except (TypeError, RuntimeError):
        refuse_non_tensors(fma, (a, b, c))
        _refuse_shapes(a, b, c)
        raise


def _refuse_shapes(a: Tensor, b: Tensor, c: Tensor) -> None:
    try:
        torch.broadcast_shapes(a.shape, b.shape, c.shape)
    except RuntimeError:
        raise RuntimeError(
            "fma(): expected a, b and c to have shapes that broadcast against each other, "
            f"but got {list(a.shape)}, {list(b.shape)} and {list(c.shape)}"
        ) from None
