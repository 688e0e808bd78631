"""bias_act: every activation, dtype, rank, layout and transform."""

import copy
import math
from functools import partial

import pytest
import torch
from op_testing import LAYOUTS, assert_accurate, for_each, results_and_gradients, with_layout
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.ops.bias_act import BiasAct, activation_funcs, bias_act

STRAIGHT = ("linear", "relu", "lrelu")
act = for_each("act", activation_funcs)
clamp = for_each("clamp", [None, 0.7])
# (shape, dim): ranks 1 to 6; channels that are last or not, packs that runs of one fill or not, and
# sums of one part or of several.
SHAPES = [
    ((7,), 0),
    ((0, 4), 1),
    ((33, 64), 1),
    ((31, 3), -1),
    ((3, 1, 9), 1),
    ((2, 8, 4, 4), 1),
    ((5, 3, 7, 9), 1),
    ((2, 3, 5, 130), -2),
    ((2, 3, 4, 5, 6), 2),
    ((2, 3, 1, 4, 5, 6), 0),
]
LONG_SHAPES = [((9000, 24), 1), ((3, 2, 120, 127), 1)]  # whose sums have parts


def make(shape, dim, dtype, device, scale=1.5):
    x = (scale * torch.randn(shape)).to(device, dtype)
    return x.requires_grad_(), torch.randn(shape[dim]).to(device, dtype).requires_grad_()


def undecided(y: Tensor, clamp: float | None, dtype: torch.dtype) -> Tensor:
    """Where rounding decides whether a result is clamped."""
    if clamp is None:
        return torch.zeros_like(y, dtype=torch.bool)
    return (y.detach().abs() - clamp).abs() < 4 * torch.finfo(dtype).eps * clamp


def test_matches_float64(act, dtype, clamp, device):
    for shape, dim in SHAPES + (LONG_SHAPES if act in ("lrelu", "swish") else []):
        x, b = make(shape, dim, dtype, device)
        y = bias_act(x, b, dim, act, clamp=clamp)
        doubles = [t.detach().double().requires_grad_() for t in (x, b)]
        exact = bias_act(*doubles, dim, act, clamp=clamp, impl="ref")
        baseline = bias_act(x, b, dim, act, clamp=clamp, impl="ref")
        # Float is rounded at each step; of its t = x + b, exp(t) has |t| roundings.
        ulps = 1 if dtype.itemsize == 2 else 5
        assert_accurate(y.detach(), exact.detach(), baseline.detach(), ulps=ulps)
        weight = torch.randn(shape).to(device, dtype)
        weight = weight.masked_fill(undecided(exact, clamp, dtype), 0)
        actual = torch.autograd.grad(y, (x, b), weight)
        wanted = torch.autograd.grad(exact, doubles, weight.double())
        plain = torch.autograd.grad(baseline, (x, b), weight)
        # Swish's derivative is the sum of two numbers, of the size of a bit more than 1.
        parts = 1.5 * weight.double().abs() * activation_funcs[act].def_gain
        assert_accurate(actual[0], wanted[0], plain[0], ulps=ulps, parts=parts)
        # On a CPU the sums are those of gradients that are rounded before.
        parts = wanted[0].abs().sum([d for d in range(x.dim()) if d != dim % x.dim()])
        depth = max(1, x.numel() // max(1, b.numel())) ** 0.5
        ulps = ulps + (depth if dtype.itemsize == 2 and device == "cpu" else 0)
        assert_accurate(actual[1], wanted[1], plain[1], ulps=ulps, parts=parts, sums=True)


@pytest.mark.parametrize("act", ["lrelu", "swish"])
def test_any_layout(act, device):
    views = [with_layout(torch.randn(4, 6, 10, 8, device=device), layout) for layout in LAYOUTS]
    views += [views[0].contiguous(memory_format=torch.channels_last), views[0].transpose(1, 3)]
    views += [views[0][:, 1:5, ::2], torch.randn(2, 3, 4, 6, 5).transpose(1, 4).to(device)]
    for view in views:
        for dim in range(view.dim()):
            x = view.detach().requires_grad_()
            room = torch.randn(view.size(dim), 2, device=device)
            b = room[:, 0].requires_grad_()
            weight = with_layout(torch.randn_like(view), "strided")
            found = [bias_act(x, b, dim, act, clamp=0.9, impl=impl) for impl in ("cuda", "ref")]
            torch.testing.assert_close(*found)
            torch.testing.assert_close(*(torch.autograd.grad(y, (x, b), weight) for y in found))


@pytest.mark.parametrize("dtype", [torch.half, torch.float])
def test_small_arguments_keep_their_precision(act, dtype, device):
    x = torch.tensor([1e-3, -1e-3, 3e-5, -3e-5], device=device).to(dtype)
    actual, exact = bias_act(x, act=act), bias_act(x.double(), act=act, impl="ref")
    rtol = 6 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        actual.double(), exact, rtol=rtol, atol=1e-7 if dtype.itemsize == 2 else 0
    )


def test_nan_infinity_and_large_values(act, clamp, dtype, device):
    x = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 90.0, -90.0, 6e4, -6e4] * 3,
        device=device,
        dtype=dtype,
    )
    wanted = bias_act(x.double(), act=act, clamp=clamp, impl="ref").to(dtype)
    rtol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        bias_act(x, act=act, clamp=clamp), wanted, rtol=rtol, atol=1e-30, equal_nan=True
    )


def test_second_and_third_derivatives(act, clamp, device):
    x, b = make((2, 3, 2), 1, torch.double, device)

    def first(x, b):
        y = bias_act(x, b, 1, act, gain=1.3, clamp=clamp)
        return torch.autograd.grad(y.square().sum(), (x, b), create_graph=True)

    assert gradcheck(first, (x, b))
    assert gradgradcheck(first, (x, b))


@pytest.mark.parametrize(
    ("act", "options"),
    [
        ("tanh", {"gain": 0.0}),
        ("lrelu", {"alpha": -0.5}),
        ("lrelu", {"gain": -1.5}),
        ("softplus", {"gain": -0.7, "clamp": 0.5}),
        ("lrelu", {"alpha": 0.0}),
        ("linear", {"clamp": 0.0}),
    ],
)
def test_unusual_numbers(act, options, device):
    x, b = make((3, 4, 5), 1, torch.double, device)
    runs = [partial(bias_act, act=act, impl=impl, **options) for impl in ("cuda", "ref")]
    torch.testing.assert_close(*(results_and_gradients(run, (x, b)) for run in runs))


def test_a_tiny_gain_in_half_loses_no_derivative(device):
    x = torch.tensor([1e-3, -1e-3], dtype=torch.half, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(bias_act(x, dim=0, act="lrelu", gain=1e-5).sum() * 1e4, x)
    torch.testing.assert_close(grad, torch.tensor([0.1, 0.02]).half().to(device), rtol=5e-2, atol=0)


def test_a_clamp_that_rounds_still_masks():
    x = torch.full((4,), 3.0, dtype=torch.half, requires_grad=True)
    y = bias_act(x, clamp=0.1)  # as a half 0.09998
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros_like(x))


def test_the_derivative_at_the_clamp_is_zero_everywhere():
    x = torch.tensor([-3.0, -2.0, -1.0, 0.0, 2.0, float("inf"), float("nan")])
    expected = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    for impl in ("cuda", "ref"):
        leaf = x.clone().requires_grad_()
        y = bias_act(leaf, clamp=2.0, impl=impl)
        torch.testing.assert_close(y, x.clamp(-2, 2), equal_nan=True, rtol=0, atol=0)
        assert torch.equal(torch.autograd.grad(y.sum(), leaf)[0][:-1], expected)
    tangent = torch.func.jvp(lambda x: bias_act(x, clamp=2.0), (x,), (torch.ones_like(x),))[1]
    assert torch.equal(tangent[:-1], expected)


def test_saves_only_what_is_needed():
    """Of the common ones the result, which the next layer keeps anyway."""
    x, b = make((4, 3), 1, torch.float, "cpu")
    for act in activation_funcs:
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
            y = bias_act(x, b, act=act)
        kept = [] if act == "linear" else [y] if act in STRAIGHT else [x, b]
        assert [t.data_ptr() for t in saved] == [t.data_ptr() for t in kept]


@pytest.mark.parametrize("dtype", [torch.half, torch.float], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_clamped_line_may_be_added_to_in_place(bias, dtype, device):
    """As a residual block adds to a layer that is linear; of both orders, and with few kept."""
    x = torch.randn(3, 5, dtype=dtype, device=device, requires_grad=True)
    b = torch.randn(5, dtype=dtype, device=device, requires_grad=True) if bias else None
    leaves, found = [x, b] if bias else [x], []
    for impl in ("cuda", "ref"):
        y = bias_act(x, b, gain=2, clamp=1, impl=impl)
        y.add_(x)
        first = torch.autograd.grad((y * y).sum(), leaves, create_graph=True)
        found.append([y, *first, *torch.autograd.grad(first[0].sum(), leaves)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("act", ["elu", "selu", "softplus", "swish", "tanh", "sigmoid"])
def test_second_derivatives_at_zero_are_torchs(act, dtype, device):
    """Where 16-bit numbers often are; -0, too."""
    found = []
    for impl in ("cuda", "ref"):
        x = torch.tensor([[0.0, -0.0]], dtype=dtype, device=device, requires_grad=True)
        y = bias_act(x, act=act, impl=impl)
        [first] = torch.autograd.grad(y.sum(), x, create_graph=True)
        found.append([first, torch.autograd.grad(first.sum(), x)[0]])
    torch.testing.assert_close(*found)


@pytest.mark.large
@pytest.mark.parametrize("shape", [(2**31 // 64 + 1, 64), (2, 3, 2**29)])
def test_beyond_31_bits(shape, device):
    x = torch.full(shape, -1.0, dtype=torch.half, device=device, requires_grad=True)
    b = torch.zeros(shape[1], dtype=torch.half, device=device, requires_grad=True)
    y = bias_act(x, b, act="lrelu", gain=1.0)
    assert y.detach().select(0, -1).eq(torch.tensor(-0.2).half().item()).all()
    (grad,) = torch.autograd.grad(y, b, y.detach() / 2**10)
    wanted = 0.2 * 0.2 * (x.numel() // shape[1]) / 2**10
    assert grad.double().neg().tolist() == pytest.approx([wanted] * shape[1], rel=5e-3)


def test_module_and_table():
    module = BiasAct(4, act="lrelu")
    x = torch.randn(2, 4)
    torch.testing.assert_close(module(x), math.sqrt(2) * torch.nn.functional.leaky_relu(x, 0.2))
    assert copy.deepcopy(module).bias.shape == (4,)
    assert BiasAct(4, bias=False).bias is None
    assert "act='lrelu'" in repr(module)
    for name, activation in activation_funcs.items():
        assert activation.def_gain == (2**0.5 if name in ("relu", "lrelu", "swish") else 1)
        actual = bias_act(x, act=name)
        wanted = activation.def_gain * activation.func(x, alpha=activation.def_alpha)
        torch.testing.assert_close(actual, wanted)
