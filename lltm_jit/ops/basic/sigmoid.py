"""sigmoid: ``s = 1 / (1 + exp(-x))``, elementwise, and its derivative.

Source of the maths: the logistic function, with derivative ``(1 - s) s``. For ``x < 0`` the kernels
use the equal form ``exp(x) / (1 + exp(x))``, so that no exponential overflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from lltm_jit import native
from lltm_jit._library import define, refuse_non_tensors

define(
    "basic",
    "sigmoid(Tensor x) -> Tensor",
    "sigmoid_backward(Tensor grad, Tensor s) -> Tensor",
    "d_sigmoid(Tensor z) -> Tensor",
)


def sigmoid(x: Tensor) -> Tensor:
    """Return the logistic sigmoid of ``x``, without overflow for large ``|x|``.

    Args:
        x: half, bfloat16, float or double tensor of any shape, layout and device.

    Returns:
        Tensor with the shape, dtype and device of ``x``. It is differentiable any number of times;
        the derivative ``(1 - s) s`` is computed from the saved result ``s``.

    Raises:
        RuntimeError: if ``x`` does not have one of these dtypes.
        TypeError: if ``x`` is not a tensor.

    Example:
        >>> sigmoid(torch.tensor([-1000.0, 0.0, 1000.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    try:
        # Subclasses and modes with a __torch_function__ see the operator, not the extension.
        if torch.compiler.is_compiling() or has_torch_function_unary(x):
            return torch.ops.lltm_jit.sigmoid(x)
        return native.basic.sigmoid(x)
    except (TypeError, RuntimeError):
        refuse_non_tensors(sigmoid, (x,))
        raise


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
    try:
        if torch.compiler.is_compiling() or has_torch_function_unary(z):
            return torch.ops.lltm_jit.d_sigmoid(z)
        return native.basic.d_sigmoid(z)
    except (TypeError, RuntimeError):
        refuse_non_tensors(d_sigmoid, (z,))
        raise


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
