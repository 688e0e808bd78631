"""What the tests of filtered_lrelu share: filters, calls, and how close results are to float64."""

import math
from collections.abc import Callable

import torch
from subclasses import Dispatched
from torch import Tensor

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.upfirdn2d import upfirdn2d

# Norm of the error over that of the result; on tensor cores halves are rounded on the way, too.
ONE_ROUNDING = {torch.half: 2.1e-4, torch.bfloat16: 1.7e-3}
LIMITS = {torch.half: 4.5e-4, torch.bfloat16: 1.8e-3, torch.float: 1e-6, torch.double: 1e-13}


Taps = int | tuple[int, int] | Tensor | None


def make_filter(taps: Taps, device: str | torch.device = "cpu") -> Tensor | None:
    """A filter without any symmetry, whose taps sum to 1; None for none."""
    if taps is None or isinstance(taps, Tensor):
        return taps
    f = torch.rand(taps, dtype=torch.float) + 0.2
    return (f / f.sum()).to(device)


def make_inputs(
    shape: tuple[int, ...], dtype: torch.dtype = torch.double, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    """x and b."""
    x = torch.randn(shape).to(device, dtype)
    return x, torch.randn(shape[1]).to(device, dtype)


def call_of(x: Tensor, fu: Taps = 12, fd: Taps = 12, **call) -> dict:
    """The arguments of a call for x, whose filters may be given by their taps."""
    filters = {name: make_filter(taps, x.device) for name, taps in (("fu", fu), ("fd", fd))}
    return {**filters, "up": 2, "down": 2, **call}


def centred_padding(size: int, up: int, down: int, taps: int) -> list[int]:
    """The one for an image whose result has up / down times its size; taps of both filters."""
    around = (size * up // down - 1) * down + taps - 1 - size * up
    before = (around + up) // 2
    return [before, around - before] * 2


def error(actual: Tensor, exact: Tensor, least: float = 1e-30) -> float:
    """The norm of the error over the norm of the result, which counts as `least` at least."""
    assert actual.shape == exact.shape
    difference = (actual.double() - exact.double()).norm()
    return (difference / exact.double().norm().clamp(min=least)).item()


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


def assert_close(
    name: str, actual: Tensor, exact: Tensor, factor: float = 1, least: float = 1e-30
) -> None:
    limit = factor * LIMITS[actual.dtype]
    if actual.dtype in ONE_ROUNDING:  # more where the result's numbers happen to round badly
        once = error(exact.to(actual.dtype), exact)
        limit *= max(1, once / ONE_ROUNDING[actual.dtype])
    # Of few elements each may be rounded badly.
    if actual.numel() < 1000:
        limit = max(limit, 4 * torch.finfo(actual.dtype).eps)
    found = error(actual, exact, least)
    assert found <= limit, f"{name}: {found:.3g}, allowed {limit:.3g}"


def check(x: Tensor, b: Tensor | None, **call) -> None:
    """Compare a call and its gradients with float64."""
    call = call_of(x, **call)
    actual, exact = results(x, b, **call), in_double(x, b, **call)
    # A channel's gradients may cancel; what is left of them is no measure of their errors.
    all_of_b = 0.05 * exact[1].abs().sum((0, 2, 3)).norm().item()
    for name, a, e in zip(("y", "grad_x", "grad_b"), actual, exact, strict=False):
        assert a.dtype == x.dtype
        least = max(all_of_b, 1e-30) if name == "grad_b" else 1e-30
        assert_close(name, a, e, 1 if name == "y" else 2, least)


def kept(function: Callable[[], object]) -> tuple:
    """The arguments of the linear operator in a backward pass."""
    with Dispatched() as dispatched:
        function()
    return next(args for name, args in dispatched.calls if name.endswith("filtered_lrelu_linear"))


def check_with_signs(x: Tensor, b: Tensor, **call) -> None:
    """Compare a call with float64, and its gradients with those of the signs that it has written.

    A sample of v that is next to 0 or to the clamp may be on the other side of it in another
    arithmetic. Its derivative is another number then, however close the sample is, and among
    millions of samples there are some: the gradients of float64 are no measure. So the gradients
    are held against the exact ones of the signs that were used; and these signs against the
    samples of float64, for they must only differ where those are next to a kink.
    """
    call, actual = call_of(x, **call), []
    grad, signs, *rest = kept(lambda: actual.extend(results(x, b, **call)))
    assert_close("y", actual[0], in_double(x, b, **call)[0])

    exact = torch.ops.lltm_jit.filtered_lrelu_linear(grad.double(), signs, *rest)[0]
    assert_close("grad_x", actual[1], exact)
    assert_close("grad_b", actual[2], exact.sum((0, 2, 3)), 2)

    # A linear call of factor 1 on ones shows what each sample is multiplied by.
    size, phase, slope = rest[5], rest[7], rest[9]
    ones = torch.ones((*x.shape[:2], *size), dtype=torch.double, device=x.device)
    as_they_are = (None, None, 1, 1, [0] * 4, size, [0, 0], phase, 1.0, slope, False, False)
    used = torch.ops.lltm_jit.filtered_lrelu_linear(ones, signs, *as_they_are)[0]
    up, padding = call["up"], call["padding"]
    v = x.double() + b.double()[:, None, None]
    v = upfirdn2d(v, call["fu"], up, 1, padding, gain=math.sqrt(2) * up**2, impl="ref")
    clamp = call["clamp"] or math.inf
    act = torch.where(v < 0, slope * v, v)
    exact_factor = torch.ones_like(v).masked_fill(v < 0, slope).masked_fill(act.abs() > clamp, 0.0)
    to_kink = torch.minimum(v.abs(), (act.abs() - clamp).abs())
    # Rounded are the taps, what they make of the columns, v, and, as halves, the clamp: each by a
    # relative `eps / 2` of numbers that are, over all taps, no larger than the largest |v| is.
    eps = torch.finfo(torch.half).eps if x.element_size() == 2 else 2**-21
    assert (to_kink[used != exact_factor] <= 2 * eps * v.abs().max()).all()
