"""The elementwise operators. The body of each function is its reference, in plain PyTorch.

Sources of the maths: ``my_op`` is its own definition; the sigmoid is the logistic function, with
derivative ``(1 - s) s``, for which the kernels use ``exp(x) / (1 + exp(x))`` where ``x < 0``, so
that no exponential overflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lltm_jit.ops._elementwise import elementwise

__all__ = ["MyOp", "Sigmoid", "d_sigmoid", "my_op", "sigmoid"]


@elementwise()
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
    return 3 * x - y


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


@elementwise("s")
def sigmoid(x: Tensor) -> Tensor:
    """Return the logistic sigmoid of ``x``, without overflow for large ``|x|``.

    Args:
        x: half, bfloat16, float or double tensor of any shape, layout and device.

    Returns:
        Tensor with the shape, dtype and device of ``x``. It is differentiable any number of times;
        the derivative ``(1 - s) s`` is computed from the saved result ``s``, as in torch: in 16
        bits it is 0 where ``s`` is rounded to 1, in bfloat16 for ``x`` from 6.3 on. The sigmoid of
        :func:`~lltm_jit.ops.stylegan.bias_act.bias_act` keeps ``x`` instead.

    Raises:
        RuntimeError: if ``x`` does not have one of these dtypes.
        TypeError: if ``x`` is not a tensor.

    Example:
        >>> sigmoid(torch.tensor([-1000.0, 0.0, 1000.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return torch.sigmoid(x)


@elementwise(composite=True)
def d_sigmoid(z: Tensor) -> Tensor:
    """Return the derivative of the sigmoid at ``z``: ``(1 - s) s`` with ``s = sigmoid(z)``.

    Args:
        z: half, bfloat16, float or double tensor of any shape, layout and device.

    Returns:
        Tensor with the shape, dtype and device of ``z``, differentiable any number of times.

    Raises:
        RuntimeError: if ``z`` does not have one of these dtypes.
        TypeError: if ``z`` is not a tensor.

    Example:
        >>> d_sigmoid(torch.tensor([0.0]))
        tensor([0.2500])
    """
    s = torch.sigmoid(z)
    return (1 - s) * s


class Sigmoid(torch.nn.Module):
    """:func:`sigmoid` as a module without parameters, with the same shapes, dtypes and errors.

    Example:
        >>> Sigmoid()(torch.zeros(2))
        tensor([0.5000, 0.5000])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the sigmoid of ``x``; see :func:`sigmoid`."""
        return sigmoid(x)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...
