"""fma: ``a * b + c``, broadcasting, with derivatives of any order.

This is :func:`torch.addcmul`: one kernel that rounds 16-bit types once, and autograd saves only `a`
and `b`. A kernel of our own would move the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lltm_jit._library import refuse_non_tensor


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return ``a * b + c``, by :func:`torch.addcmul`.

    Args:
        a, b, c: tensors of any dtype on one device, with shapes that broadcast.

    Returns:
        Tensor of the broadcast shape and the promoted dtype, differentiable any number of times. A
        gradient is summed over the dimensions in which its tensor was broadcast.

    Raises:
        RuntimeError: if the shapes do not broadcast.
        TypeError: if an argument is not a tensor.

    Example:
        >>> fma(torch.tensor([1.0, 2.0]), torch.tensor(3.0), torch.tensor(0.5))
        tensor([3.5000, 6.5000])
    """
    try:
        if torch.is_autocast_enabled("cuda"):  # its rule for addcmul refuses half or bfloat16
            with torch.autocast("cuda", enabled=False):
                return torch.addcmul(c, a, b)
        return torch.addcmul(c, a, b)
    except (TypeError, RuntimeError):
        for name, tensor in {"a": a, "b": b, "c": c}.items():
            refuse_non_tensor("fma", name, tensor)
        raise
