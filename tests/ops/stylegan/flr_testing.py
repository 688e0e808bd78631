"""What the tests of filtered_lrelu share: filters, calls, and how close results are to float64."""

from __future__ import annotations

import torch
from torch import Tensor

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu

# Norm of the error over that of the result. One rounding is 2.1e-4 in half, 1.7e-3 in bfloat16;
# on tensor cores halves are rounded on the way, too.
LIMITS = {torch.half: 4.5e-4, torch.bfloat16: 2.2e-3, torch.float: 1e-6, torch.double: 1e-13}


def make_filter(taps: int | tuple[int, int] | None, device: str = "cpu") -> Tensor | None:
    """A filter without any symmetry, whose taps sum to 1; None for none."""
    if taps is None:
        return None
    f = torch.rand(taps, dtype=torch.float) + 0.2
    return (f / f.sum()).to(device)


def make_inputs(
    shape: tuple[int, ...], dtype: torch.dtype = torch.double, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    """x and b."""
    x = torch.randn(shape).to(device, dtype)
    return x, torch.randn(shape[1]).to(device, dtype)


def error(actual: Tensor, exact: Tensor) -> float:
    """The norm of the error over the norm of the result."""
    assert actual.shape == exact.shape
    difference = (actual.double() - exact.double()).norm()
    return (difference / exact.double().norm().clamp(min=1e-30)).item()


def results(x: Tensor, b: Tensor | None, *, impl: str = "cuda", **call) -> list[Tensor]:
    """y, and the gradients of x and b for a gradient of y that depends on its shape alone."""
    leaves = [
        t.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        for t in (x, b)
        if t is not None
    ]
    y = filtered_lrelu(leaves[0], b=leaves[1] if b is not None else None, impl=impl, **call)
    # Numbers that every dtype has, whose filtered values do not cancel.
    weight = (torch.arange(y.numel()).mul(7919).remainder(17).sub(5) / 8).view(y.shape)
    grads = torch.autograd.grad(y, leaves, weight.to(y.device, y.dtype))
    return [y.detach(), *grads]


def in_double(x: Tensor, b: Tensor | None, **call) -> list[Tensor]:
    """What :func:`results` would be without any rounding."""
    return results(x.double(), None if b is None else b.double(), impl="ref", **call)


def check(x: Tensor, b: Tensor | None, **call) -> None:
    """Compare a call and its gradients with float64."""
    actual, exact = results(x, b, **call), in_double(x, b, **call)
    names = ("y", "grad_x", "grad_b")
    for name, a, e in zip(names, actual, exact, strict=False):
        assert a.dtype == x.dtype
        # Signs of samples that are next to 0 may differ. Of few elements each may be rounded badly.
        limit = LIMITS[x.dtype] * (1 if name == "y" else 2)
        if a.numel() < 1000:
            limit = max(limit, 4 * torch.finfo(x.dtype).eps)
        assert error(a, e) <= limit, f"{name}: {error(a, e):.3g}, allowed {limit:.3g}"
