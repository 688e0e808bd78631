"""fused_bias_act and fused_leaky_relu, the activation of the PyTorch port of StyleGAN2.

``scale * f(input + bias)``, where ``f`` is a leaky ReLU or nothing and the bias goes along
dimension 1: :mod:`lltm_jit.ops.stylegan.bias_act` under other names. Source of the maths: Karras et
al., "Analyzing and Improving the Image Quality of StyleGAN" (2020).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops._library import define, refuse_non_tensor
from lltm_jit.ops.stylegan._implementation import takes_reference

define(
    "stylegan",
    "fused_bias_act(Tensor input, Tensor? bias, Tensor? refer, int act, int grad, float alpha,"
    " float scale) -> Tensor",
)

_LINEAR, _LEAKY_RELU = 1, 3


def fused_bias_act_reference(
    input: Tensor,
    bias: Tensor | None,
    refer: Tensor | None,
    act: int,
    grad: int,
    alpha: float,
    scale: float,
) -> Tensor:
    """``fused_bias_act`` in plain PyTorch, 16-bit types in float."""
    if act not in (_LINEAR, _LEAKY_RELU) or grad not in (0, 1, 2):
        raise RuntimeError(
            "fused_bias_act(): expected act to be 1 or 3, and grad to be 0, 1 or 2, "
            f"but got {act} and {grad}"
        )
    if refer is not None and refer.numel() == 0:
        refer = None
    if act == _LEAKY_RELU and grad == 1 and (refer is None or refer.shape != input.shape):
        raise RuntimeError(
            f"fused_bias_act(): expected refer to have shape {list(input.shape)}, "
            f"but got {None if refer is None else list(refer.shape)}"
        )
    if grad == 2:
        return torch.zeros_like(input)
    t = input.to(torch.double if input.dtype == torch.double else torch.float)
    if bias is not None and bias.numel() > 0:
        t = t + bias.to(t.dtype).reshape([-1 if d == 1 else 1 for d in range(t.ndim)])
    if act == _LEAKY_RELU and grad == 0:
        t = F.leaky_relu(t, alpha)
    elif refer is not None and act == _LEAKY_RELU:
        t = torch.where(refer > 0, t, alpha * t)
    return (t * scale).to(input.dtype)


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

    Args:
        input: (N, C, ...) of any strides; half, bfloat16, float or double. The 16-bit types are
            computed in float, and rounded once.
        bias: (C,), of the dtype and device of ``input``; an empty tensor or ``None`` for none.
        refer: the tensor whose sign decides in ``grad=1``, of the shape, dtype and device of
            ``input``; an empty tensor or ``None`` where it is not used.
        act: 1 for the identity, 3 for a leaky ReLU.
        grad: 0 for the function; 1 for its derivative at ``refer`` times ``t``; 2 for zeros, the
            second derivative.
        alpha: the slope of the leaky ReLU where ``t``, or ``refer``, is not positive.
        scale: multiplies the result.
        impl: ``"cuda"`` for the kernels, on the CPU too, or ``"ref"`` for plain PyTorch.

    Returns:
        Tensor of the shape, dtype and device of ``input``. Differentiable any number of times in
        ``input`` and ``bias``.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit, or ``act`` or ``grad`` is none of
            the above.
        ValueError: if ``impl`` is none of the above.
        TypeError: if ``input``, ``bias`` or ``refer`` is no tensor.
    """
    args = (input, bias, refer, act, grad, alpha, scale)
    try:
        if takes_reference("fused_bias_act", impl, input):
            return fused_bias_act_reference(*args)
        if torch.compiler.is_compiling() or has_torch_function((input, bias, refer)):
            return torch.ops.lltm_jit.fused_bias_act(*args)
        return native.stylegan.fused_bias_act(*args)
    except (AttributeError, TypeError, RuntimeError):
        refuse_non_tensor("fused_bias_act", "input", input)
        refuse_non_tensor("fused_bias_act", "bias", bias, optional=True)
        refuse_non_tensor("fused_bias_act", "refer", refer, optional=True)
        raise


def fused_leaky_relu(
    input: Tensor,
    bias: Tensor | None = None,
    negative_slope: float = 0.2,
    scale: float = math.sqrt(2),
    impl: str = "cuda",
) -> Tensor:
    """Return ``scale * leaky_relu(input + bias)``, the bias along dimension 1.

    Args:
        input: (N, C, ...) of any strides; half, bfloat16, float or double.
        bias: (C,), of the dtype and device of ``input``, or ``None``. Under ``torch.autocast`` it
            is cast to the dtype of ``input``.
        negative_slope: the slope below zero.
        scale: multiplies the result.
        impl: ``"cuda"`` for the kernels, on the CPU too, or ``"ref"`` for plain PyTorch.

    Returns:
        Tensor of the shape, dtype and device of ``input``. Differentiable any number of times in
        ``input`` and ``bias``.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit; the message names
            ``fused_bias_act``.
        ValueError: if ``impl`` is none of the above.
        TypeError: if ``input`` or ``bias`` is no tensor.
    """
    return fused_bias_act(input, bias, None, _LEAKY_RELU, 0, negative_slope, scale, impl)


class FusedLeakyReLU(torch.nn.Module):
    """:func:`fused_leaky_relu` with a bias of its own.

    Args:
        channel: size of dimension 1 of the input.
        bias: whether there is a bias, the parameter ``bias`` of shape (channel,), at first zeros.
        negative_slope, scale: those of :func:`fused_leaky_relu`.
    """

    def __init__(
        self,
        channel: int,
        bias: bool = True,
        negative_slope: float = 0.2,
        scale: float = math.sqrt(2),
    ) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(channel)) if bias else None
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``; see :func:`fused_leaky_relu`."""
        return fused_leaky_relu(input, self.bias, self.negative_slope, self.scale)

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...
