"""my_op: ``z = 3x - y``, elementwise: the smallest operator of two inputs, to learn from.

Source of the maths: it is its own definition, with ``dz/dx = 3`` and ``dz/dy = -1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops._library import define, refuse_non_tensors

define(
    "basic",
    "my_op(Tensor x, Tensor y) -> Tensor",
    "my_op_backward(Tensor grad) -> (Tensor, Tensor)",
)


def my_op_reference(x: Tensor, y: Tensor) -> Tensor:
    """``my_op`` in plain PyTorch."""
    return 3 * x - y


def my_op(x: Tensor, y: Tensor) -> Tensor:
    """Return ``3x - y``.

    Args:
        x: tensor of any shape, layout and device, of any integer, floating-point or complex dtype.
            Integers wrap around.
        y: tensor of the shape, dtype and device of ``x``; nothing is broadcast.

    Returns:
        Tensor of the shape, dtype and device of ``x``. Differentiable any number of times, with
        ``dz/dx = 3`` and ``dz/dy = -1``.

    Raises:
        RuntimeError: if the shapes, dtypes or devices differ; the message names both.
        TypeError: if an argument is no tensor.
    """
    try:
        # Subclasses and modes with a __torch_function__ see the operator, not the extension.
        if torch.compiler.is_compiling() or has_torch_function((x, y)):
            return torch.ops.lltm_jit.my_op(x, y)
        return native.basic.my_op(x, y)
    except (TypeError, RuntimeError):
        refuse_non_tensors(my_op, (x, y))
        raise


class MyOp(torch.nn.Module):
    """:func:`my_op` as a module without parameters; its shapes, dtypes and errors."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``3x - y``; see :func:`my_op`."""
        return my_op(x, y)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, y: Tensor) -> Tensor: ...
