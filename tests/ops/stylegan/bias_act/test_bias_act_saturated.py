"""bias_act's gradients at every number of the 16-bit types, where activations are flat too."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import jvp, vjp, vmap

from lltm_jit.ops.bias_act import activation_funcs, bias_act

# Gain and clamp. In half, 1e5 makes y overflow.
KINDS = [(1.0, None), (-1.5, 0.7), (0.3, None), (1e5, None), (1e5, 256.0), (0.0, None)]
SELU = (1.0507009873554805, 1.6732632423543772)  # scale and alpha
FUNCTIONS = {
    "linear": lambda t: t,
    "relu": F.relu,
    "lrelu": lambda t: F.leaky_relu(t, 0.2),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": lambda t: F.softplus(t, threshold=40),
    "swish": F.silu,
}


def sigmoid(t: Tensor) -> Tensor:
    e = t.abs().neg().exp()
    return torch.where(t > 0, 1 / (1 + e), e / (1 + e))


def slope(act: str, t: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative, of double, and how large its parts are where they cancel."""
    below = t.clamp(max=0).exp()
    of = {
        "linear": lambda: torch.ones_like(t),
        "relu": lambda: (t > 0).double(),
        "lrelu": lambda: torch.where(t > 0, torch.ones_like(t), 0.2),
        "tanh": lambda: t.cosh().pow(-2),
        "sigmoid": lambda: (t / 2).cosh().pow(-2) / 4,
        "elu": lambda: below,
        "selu": lambda: torch.where(t > 0, SELU[0], SELU[0] * SELU[1] * below),
        "softplus": lambda: sigmoid(t),
        "swish": lambda: sigmoid(t) * (1 + t * sigmoid(-t)),
    }[act]()
    parts = sigmoid(t) * (1 + t.abs() * sigmoid(-t)) if act == "swish" else of.abs()
    return of, parts


def by_kernel(function, x, weight):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, weight)[0]


# "formula": forward mode differentiates it. "vmap": the formula of the derivative.
WAYS = {
    "kernel": by_kernel,
    "reference": lambda function, x, w: by_kernel(lambda x: function(x, impl="ref"), x, w),
    "formula": lambda function, x, weight: jvp(function, (x,), (weight,))[1],
    "vmap": lambda function, x, weight: vmap(lambda x, w: vjp(function, x)[1](w)[0])(
        x[None], weight[None]
    )[0],
}


def numbers(dtype: torch.dtype) -> Tensor:
    """Of a 16-bit type all numbers near 1, and some of the others; of other types some."""
    if dtype.itemsize == 2:
        x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        near = (x.abs() > 2**-8) & (x.abs() < 2**7)
        return torch.cat([x[near], x[x.abs() < 1e30][::31]])
    x = torch.cat([torch.linspace(-90, 90, 7001), 1e-3 * torch.randn(1000), torch.randn(4000)])
    return x.to(dtype)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double])
@pytest.mark.parametrize("act", activation_funcs)
def test_gradients_are_rounded_once(act, dtype, way, device):
    x = numbers(dtype)
    weight = torch.randn(x.shape).to(dtype)
    t, eps = x.double(), torch.finfo(dtype).eps
    first, parts = slope(act, t)
    # One rounding of at most half of eps, of what the GPU has right to some 14 bits; before it, and
    # of float and double alone, the roundings of each step.
    once = 0.6 * eps if dtype.itemsize == 2 else 0
    steps = (5 if device == "cpu" else 8) * torch.finfo(torch.promote_types(dtype, torch.float)).eps
    for gain, clamp in KINDS:
        y = gain * FUNCTIONS[act](t)

        def function(x, gain=gain, clamp=clamp, **options):
            return bias_act(x, dim=0, act=act, gain=gain, clamp=clamp, **options)

        actual = WAYS[way](function, x.to(device), weight.to(device)).cpu()
        scale = weight.double() * gain
        if clamp is not None:  # leave out where the arithmetic decides whether y is clamped
            margin = 1e-4 if dtype.itemsize == 2 else 8 * eps
            low, high = ((y.abs() * (1 + m)).to(dtype) < clamp for m in (-margin, margin))
            scale = torch.where(high, scale, 0)
            actual = actual.where(low == high, 0)
            scale = scale.where(low == high, 0)
        exact = scale * first
        at_overflow = (1.001 * exact).to(dtype).isinf() & (0.999 * exact).to(dtype).isfinite()
        actual, exact = actual.where(~at_overflow, 0), exact.where(~at_overflow, 0)
        rounded = exact.to(dtype)
        assert torch.equal(actual[rounded.isinf()], rounded[rounded.isinf()])
        error = (actual.double() - exact).abs()[rounded.isfinite()]
        # exp is 0 below the smallest number of its arithmetic.
        smallest = 2**-24 if dtype == torch.half else 0
        floor = smallest + scale.abs() * (1 + t.abs()) * 2**-125
        limit = once * exact.abs() + steps * scale.abs() * parts + floor
        excess = error - limit[rounded.isfinite()]
        assert excess.max() <= 0, (gain, clamp, x[rounded.isfinite()][excess.argmax()].item())
