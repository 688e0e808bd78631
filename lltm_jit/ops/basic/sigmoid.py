"""sigmoid: ``s = 1 / (1 + exp(-x))``, elementwise, and its derivative.

Source of the maths: the logistic function, whose derivative is ``(1 - s) s``; for ``x < 0`` the
equal form ``exp(x) / (1 + exp(x))``, so that no exponential overflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from lltm_jit import native
from lltm_jit.ops._library import define, refuse_non_tensors

define(
    "basic",
    "sigmoid(Tensor x) -> Tensor",
    "sigmoid_backward(Tensor grad, Tensor s) -> Tensor",
    "d_sigmoid(Tensor z) -> Tensor",
)


def sigmoid_reference(x: Tensor) -> Tensor:
    """``sigmoid`` in plain PyTorch, the numerically stable form of the kernels."""
    e = torch.exp(-x.abs())
    return torch.where(x > 0, 1.0, e) / (1 + e)


def sigmoid(x: Tensor) -> Tensor:
    """Return the logistic sigmoid of ``x``, without overflow at large ``|x|``.

    Args:
        x: tensor of any shape, layout and device; half, bfloat16, float or double.

    Returns:
        Tensor of the shape, dtype and device of ``x``. Differentiable any number of times: the
        derivative ``(1 - s) s`` comes from the saved result ``s``.

    Raises:
        RuntimeError: if the dtype of ``x`` is not a floating-point one.
        TypeError: if it is no tensor.
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
        z: tensor of any shape, layout and device; half, bfloat16, float or double.

    Returns:
        Tensor of the shape, dtype and device of ``z``. Differentiable any number of times.

    Raises:
        RuntimeError: if the dtype of ``z`` is not a floating-point one.
        TypeError: if it is no tensor.
    """
    try:
        if torch.compiler.is_compiling() or has_torch_function_unary(z):
            return torch.ops.lltm_jit.d_sigmoid(z)
        return native.basic.d_sigmoid(z)
    except (TypeError, RuntimeError):
        refuse_non_tensors(d_sigmoid, (z,))
        raise


class Sigmoid(torch.nn.Module):
    """:func:`sigmoid` as a module without parameters; its shapes, dtypes and errors."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the sigmoid of ``x``; see :func:`sigmoid`."""
        return sigmoid(x)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...
