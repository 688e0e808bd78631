"""my_op: ``z = 3x - y``, elementwise. The smallest operator with two inputs, to learn from.

Source of the maths: its own definition, with ``dz/dx = 3`` and ``dz/dy = -1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit._library import define, refuse_non_tensors

define(
    "basic",
    "my_op(Tensor x, Tensor y) -> Tensor",
    "my_op_backward(Tensor grad) -> (Tensor, Tensor)",
)


def my_op(x: Tensor, y: Tensor) -> Tensor:
    """Return ``3x - y``.

    Args:
        x: tensor of any shape, layout and device, with any integer, floating-point or complex
            dtype. Integers wrap around on overflow.
        y: tensor with the shape, dtype and device of ``x``. There is no broadcasting.

    Returns:
        Tensor with the shape, dtype and device of ``x``. It is differentiable any number of times,
        with ``dz/dx = 3`` and ``dz/dy = -1``.

    Raises:
        RuntimeError: if shapes, dtypes or devices differ; the message gives both.
        TypeError: if an argument is not a tensor.

    Example:
        >>> my_op(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
        tensor([2., 5.])
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
    """:func:`my_op` as a module without parameters, with the same shapes, dtypes and errors.

    Example:
        >>> MyOp()(torch.ones(2), torch.ones(2))
        tensor([2., 2.])
    """

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``3x - y``; see :func:`my_op`."""
        return my_op(x, y)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, y: Tensor) -> Tensor: ...
