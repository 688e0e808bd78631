"""bias_act: ``y = clamp(gain * f(x + b))``, with ``b`` along one dimension and ``f`` by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import define, refuse, refuse_wrong_types
from lltm_jit.ops.stylegan._implementation import by_torch, calls_kernels

_KIND = "int dim, int act, float alpha, float gain, float? clamp"

define(
    "stylegan",
    f"bias_act(Tensor x, Tensor? b, {_KIND}) -> Tensor",
    # Gradients of x and b, where output_mask asks for them. saved: y for linear, relu, lrelu, but
    # None for linear without a clamp; x for all others, and only these get b.
    f"bias_act_backward(Tensor grad, Tensor? saved, Tensor? b, {_KIND}, bool[2] output_mask)"
    " -> (Tensor grad_x, Tensor grad_b)",
)


@dataclass(frozen=True)
class Activation:
    """One activation function of :func:`bias_act`."""

    func: Callable[..., Tensor]  # func(t, alpha=...), in plain PyTorch
    number: int  # in the operators' schemas
    def_alpha: float = 0.0  # the defaults of alpha and gain in a call
    def_gain: float = 1.0


activation_funcs: dict[str, Activation] = {
    "linear": Activation(lambda t, alpha=0.0: t, 1),
    "relu": Activation(lambda t, alpha=0.0: F.relu(t), 2, def_gain=math.sqrt(2)),
    "lrelu": Activation(lambda t, alpha=0.2: F.leaky_relu(t, alpha), 3, 0.2, math.sqrt(2)),
    "tanh": Activation(lambda t, alpha=0.0: torch.tanh(t), 4),
    "sigmoid": Activation(lambda t, alpha=0.0: torch.sigmoid(t), 5),
    "elu": Activation(lambda t, alpha=0.0: F.elu(t), 6),
    "selu": Activation(lambda t, alpha=0.0: F.selu(t), 7),
    "softplus": Activation(lambda t, alpha=0.0: F.softplus(t, threshold=40), 8),
    "swish": Activation(lambda t, alpha=0.0: F.silu(t), 9, def_gain=math.sqrt(2)),
}
"""The activation functions by name. Only ``lrelu`` uses alpha."""


def bias_act(
    x: Tensor,
    b: Tensor | None = None,
    dim: int = 1,
    act: str = "linear",
    alpha: float | None = None,
    gain: float | None = None,
    clamp: float | None = None,
    impl: str = "cuda",
) -> Tensor:
    """Add a bias, apply an activation function, scale and clamp: ``clamp(gain * f(x + b))``.

    Source of the maths: the activations are those of ``torch.nn.functional``; the gains are those
    of Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2020).

    Args:
        x: half, bfloat16, float or double tensor of any shape and strides. 16-bit types are
            computed in float, and rounded once.
        b: (x.shape[dim],), with the dtype and device of ``x``, or ``None``. Under
            ``torch.autocast`` it is cast to the dtype of ``x``.
        dim: the dimension of ``x`` that ``b`` belongs to; negative numbers count from the last.
        act: a name from :data:`activation_funcs`: ``linear``, ``relu``, ``lrelu``, ``tanh``,
            ``sigmoid``, ``elu``, ``selu``, ``softplus`` or ``swish``.
        alpha: the slope of ``lrelu`` below zero, 0.2 by default.
        gain: factor after the activation; by default that of :data:`activation_funcs`.
        clamp: if given, the result is limited to ``[-clamp, clamp]``.
        impl: ``"cuda"`` for the kernels, which also run on the CPU; ``"ref"`` for ATen operations.

    Returns:
        Tensor with the shape, dtype and device of ``x``, channels_last if ``x`` is. Differentiable
        any number of times in ``x`` and ``b``; the first two derivatives have kernels. The
        derivative is zero where ``|y| >= clamp``, compared in the dtype of ``x``: in 16-bit types
        this includes results that are rounded up to the clamp.

    Raises:
        RuntimeError: if a shape, dtype or device does not match, or ``clamp`` is negative.
        ValueError: if ``act`` or ``impl`` is none of the above.
        TypeError: if ``x`` or ``b`` is not a tensor, or an argument is not a number, but should be.

    Example:
        >>> x = torch.tensor([[-1.0, 0.0, 1.0]])
        >>> bias_act(x, torch.tensor([0.5, 0.5, 0.5]), act="lrelu", gain=1)
        tensor([[-0.1000,  0.5000,  1.5000]])
    """
    try:
        activation = activation_funcs[act]
    except (KeyError, TypeError):  # act may be unhashable
        names = ", ".join(map(repr, activation_funcs))
        refuse("bias_act", f"act to be one of {names}", repr(act), ValueError)
    alpha = activation.def_alpha if alpha is None else alpha
    gain = activation.def_gain if gain is None else gain
    args = (x, b, dim, activation.number, alpha, gain, clamp)
    try:
        y = native.stylegan.bias_act(*args) if calls_kernels(impl) else NotImplemented
        return by_torch("bias_act", args, impl) if y is NotImplemented else y
    except (AttributeError, TypeError, RuntimeError):
        refuse_wrong_types("bias_act", args)
        raise


class BiasAct(torch.nn.Module):
    """:func:`bias_act` with a bias of its own, a parameter that starts at zero.

    Args:
        channels: the size of the input's dimension ``dim``, and of ``bias``.
        act, alpha, gain, clamp, dim, impl: see :func:`bias_act`.
        bias: whether there is a bias.
        device, dtype: those of the bias.

    Example:
        >>> BiasAct(3, act="relu", gain=1)(torch.tensor([[-1.0, 0.0, 1.0]])).tolist()
        [[0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        channels: int,
        act: str = "linear",
        alpha: float | None = None,
        gain: float | None = None,
        clamp: float | None = None,
        dim: int = 1,
        bias: bool = True,
        impl: str = "cuda",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.act, self.alpha, self.gain, self.clamp = act, alpha, gain, clamp
        self.dim, self.impl = dim, impl
        values = torch.zeros(channels, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if values is None else torch.nn.Parameter(values))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``bias_act(x, self.bias)``; see :func:`bias_act`."""
        return bias_act(
            x, self.bias, self.dim, self.act, self.alpha, self.gain, self.clamp, self.impl
        )

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        channels = None if self.bias is None else self.bias.shape[0]
        return (
            f"channels={channels}, act={self.act!r}, alpha={self.alpha}, gain={self.gain}, "
            f"clamp={self.clamp}, dim={self.dim}"
        )
