"""fused_bias_act and fused_leaky_relu, the activation of the PyTorch port of StyleGAN2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import define, refuse_wrong_types
from lltm_jit.ops.stylegan._implementation import by_torch, calls_kernels, formula

define(
    "stylegan",
    "fused_bias_act(Tensor input, Tensor? bias, Tensor? refer, int act, int grad, float alpha,"
    " float scale) -> Tensor",
)

_LINEAR, _LEAKY_RELU = 1, 3


def _formula(
    input: Tensor,
    bias: Tensor | None,
    refer: Tensor | None,
    act: int,
    grad: int,
    alpha: float,
    scale: float,
) -> Tensor:
    """The operator in ATen operations alone. What is wrong is left for the operator to say."""
    has_slopes = act == _LEAKY_RELU and grad == 1  # by the sign of refer
    misfit = has_slopes and (refer is None or refer.shape != input.shape)
    if misfit or act not in (_LINEAR, _LEAKY_RELU) or grad not in (0, 1, 2):
        return torch.ops.lltm_jit.fused_bias_act(input, bias, refer, act, grad, alpha, scale)
    if bias is not None and bias.numel() == 0:
        bias = None
    y = formula("bias_act", input, bias, 1, act, alpha, scale, None)
    if refer is not None and has_slopes:  # y has only checked the arguments
        wide = torch.promote_types(input.dtype, torch.float)
        x, b = input.to(wide), bias if bias is None else bias.to(wide)
        y = formula("bias_act", x, b, 1, _LINEAR, alpha, scale, None)
        y = (y * torch.full_like(y, alpha).masked_fill(refer > 0, 1)).to(input.dtype)
    return torch.zeros_like(y) if grad == 2 else y


def fused_bias_act(
    input: Tensor,
    bias: Tensor | None,
    refer: Tensor | None,
    act: int,
    grad: int,
    alpha: float,
    scale: float,
    impl: str = "cuda",
) -> Tensor:
    """Run the port's low-level call: a function of ``t = input + bias``, or its derivative.

    Source of the maths: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN"
    (2020).

    Args:
        input: (N, C, ...) of any strides, in half, bfloat16, float or double. 16-bit types are
            computed in float, and rounded once.
        bias: (C,) with the dtype and device of ``input``; an empty tensor or ``None`` for no bias.
        refer: for ``grad=1``, the tensor whose sign selects the slope, with the shape, dtype and
            device of ``input``; otherwise an empty tensor or ``None``.
        act: 1 for the identity, 3 for a leaky ReLU.
        grad: 0 for the function; 1 for its derivative at ``refer``, times ``t``; 2 for its second
            derivative, which is zero.
        alpha: the slope of the leaky ReLU where ``t``, or ``refer``, is not positive.
        scale: factor of the result.
        impl: ``"cuda"`` for the kernels, which also run on the CPU; ``"ref"`` for ATen operations.

    Returns:
        Tensor with the shape, dtype and device of ``input``, differentiable any number of times in
        ``input`` and ``bias``.

    Raises:
        RuntimeError: if a shape, dtype or device does not match, or ``act`` or ``grad`` is none of
            the above.
        ValueError: if ``impl`` is none of the above.
        TypeError: if ``input``, ``bias`` or ``refer`` is not a tensor, or an argument is not a
            number, but should be.

    Example:
        >>> fused_bias_act(torch.tensor([[-1.0, 1.0]]), None, None, 3, 0, alpha=0.2, scale=1.0)
        tensor([[-0.2000,  1.0000]])
    """
    args = (input, bias, refer, act, grad, alpha, scale)
    try:
        y = native.stylegan.fused_bias_act(*args) if calls_kernels(impl) else NotImplemented
        return by_torch("fused_bias_act", args, impl, _formula) if y is NotImplemented else y
    except (AttributeError, TypeError, RuntimeError):
        refuse_wrong_types("fused_bias_act", args)
        torch.ops.lltm_jit.fused_bias_act(*args)  # its message has the names of these arguments
        raise


def fused_leaky_relu(
    input: Tensor,
    bias: Tensor | None = None,
    negative_slope: float = 0.2,
    scale: float = math.sqrt(2),
    impl: str = "cuda",
) -> Tensor:
    """Return ``scale * leaky_relu(input + bias)``, with the bias along dimension 1.

    Args:
        input: (N, C, ...) of any strides, in half, bfloat16, float or double.
        bias: (C,) with the dtype and device of ``input``, or ``None``. Under ``torch.autocast`` it
            is cast to the dtype of ``input``.
        negative_slope: the slope below zero.
        scale, impl: as for :func:`fused_bias_act`.

    Returns:
        A tensor, as :func:`fused_bias_act` returns it.

    Raises:
        RuntimeError: if a shape, dtype or device does not match; the message names
            ``fused_bias_act``.
        ValueError: if ``impl`` is none of the above.
        TypeError: if ``input`` or ``bias`` is not a tensor.

    Example:
        >>> fused_leaky_relu(torch.tensor([[-1.0, 1.0]]), torch.ones(2), scale=1.0)
        tensor([[0., 2.]])
    """
    return fused_bias_act(input, bias, None, _LEAKY_RELU, 0, negative_slope, scale, impl)


class FusedLeakyReLU(torch.nn.Module):
    """:func:`fused_leaky_relu` with a bias of its own.

    Args:
        channel: the size of the input's dimension 1.
        bias: whether there is a parameter ``bias`` of shape (channel,), which starts at zero.
        negative_slope, scale: see :func:`fused_leaky_relu`.
        device, dtype: those of the bias.

    Example:
        >>> FusedLeakyReLU(2)(torch.zeros(1, 2)).tolist()
        [[0.0, 0.0]]
    """

    channel: int | None = None  # missing in modules that a script pickled with a class of its own

    def __init__(
        self,
        channel: int,
        bias: bool = True,
        negative_slope: float = 0.2,
        scale: float = math.sqrt(2),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        values = torch.zeros(channel, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if values is None else torch.nn.Parameter(values))
        self.channel = channel
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``; see :func:`fused_leaky_relu`."""
        return fused_leaky_relu(input, self.bias, self.negative_slope, self.scale)

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        scale = f"negative_slope={self.negative_slope}, scale={self.scale:.4g}"
        return f"channel={self.channel}, bias={self.bias is not None}, {scale}"
