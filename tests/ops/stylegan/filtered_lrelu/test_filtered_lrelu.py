"""filtered_lrelu: every dtype, factor, filter, layout and padding, on both devices."""

import pytest
import torch
from flr_testing import (
    LIMITS,
    call_of,
    check,
    check_with_signs,
    error,
    in_double,
    make_filter,
    make_inputs,
    results,
)
from hypothesis import given
from hypothesis import strategies as st
from op_testing import DTYPES, LAYOUTS, needs_gpu, with_layout
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.stylegan import implementation

FACTORS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4), (3, 2), (1, 3), (5, 3)]
FILTERS = [(None, None), (12, 12), (1, 7), (24, 12), ((3, 5), 12), (12, (4, 6)), ((2, 2), (3, 3))]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize(("up", "down"), FACTORS)
def test_factors_and_filters(up, down, filters, device):
    fu, fd = filters
    for dtype, clamp in ((torch.double, 0.7), (torch.float, None)):
        x, b = make_inputs((2, 3, 9, 17), dtype, device)
        check(x, b, fu=fu, fd=fd, up=up, down=down, padding=[21, 17, 20, 18], clamp=clamp)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 3, 31, 33), (1, 4, 16, 129), (3, 1, 127, 2), (1, 2, 64, 64)]
)
def test_sizes(shape, dtype, device):
    x, b = make_inputs(shape, dtype, device)
    check(x, b, padding=[10, 11, 11, 10], clamp=1.5)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8), (2, 3, 0, 8), (2, 3, 8, 0)])
def test_empty(shape, device):
    x, b = make_inputs(shape, torch.float, device)
    y, grad_x, grad_b = results(x, b, **call_of(x, padding=12))
    assert y.shape[:2] == shape[:2]
    assert y.shape[2:] == tuple((2 * size + 24 - 22 + 1) // 2 for size in shape[2:])
    assert not y.any()
    assert grad_x.shape == shape
    assert not grad_b.any()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
def test_signs_are_those_of_the_samples(dtype, device):
    x, b = make_inputs((2, 3, 21, 37), dtype, device)
    for clamp in (None, 0.75):
        check_with_signs(x, b, fd=8, padding=[11, 10, 8, 9], clamp=clamp)


@pytest.mark.parametrize("flip_filter", [False, True])
@pytest.mark.parametrize(
    "padding", [0, [3, -2], [-5, 4, 3, -1], [40, 0, 0, 50], [30, -20, -3, 9], [-3, -4, -6, -2]]
)
def test_paddings_and_flips(padding, flip_filter, device):
    x, b = make_inputs((2, 2, 15, 23), torch.double, device)
    call = {"down": 3, "padding": padding, "flip_filter": flip_filter, "gain": 0.8, "slope": 0.3}
    check(x, b, fu=6, fd=(5, 4), clamp=0.4, **call)
    check(x, None, fu=(5, 4), fd=6, **call)


@pytest.mark.parametrize("dtype", [torch.half, torch.float])
@pytest.mark.parametrize("layout", [*LAYOUTS[1:], "channels_last"])
def test_any_layout(layout, dtype, device):
    x, b = make_inputs((2, 3, 19, 21), dtype, device)
    x = with_layout(x.to(memory_format=torch.channels_last), layout)
    b = b.repeat_interleave(2)[::2]
    fu, fd = make_filter(24, device)[::2], make_filter((3, 4), device).t()
    check(x, b, fu=fu, fd=fd, padding=[9, 8, 7, 9])
    assert filtered_lrelu(x, fu, fd, b, up=2, down=2, padding=9).is_contiguous()


@given(data=st.data())
def test_random_calls(data):
    def number(least, most):
        return data.draw(st.integers(least, most))

    dtype = data.draw(st.sampled_from(DTYPES))
    taps = st.one_of(st.none(), st.integers(1, 20), st.tuples(st.integers(1, 6), st.integers(1, 6)))
    fu, fd = make_filter(data.draw(taps)), make_filter(data.draw(taps))
    reach = sum(max(f.shape) for f in (fu, fd) if f is not None)
    padding = [number(0, 9) + (reach + 1) // 2 for _ in range(4)]
    x, b = make_inputs((number(1, 3), number(1, 3), number(1, 40), number(1, 40)), dtype)
    clamp, flip_filter = data.draw(st.sampled_from([None, 0.25])), data.draw(st.booleans())
    call = {"up": number(1, 5), "down": number(1, 5), "clamp": clamp, "flip_filter": flip_filter}
    check(x, b if data.draw(st.booleans()) else None, fu=fu, fd=fd, padding=padding, **call)


@pytest.mark.parametrize("taps", [64, (33, 40), 160, pytest.param(300, marks=pytest.mark.slow)])
def test_long_filters(taps, device):
    """On the GPU: smaller tiles, the formula."""
    x, b = make_inputs((1, 2, 20, 24), torch.float, device)
    padding = (max(taps) if isinstance(taps, tuple) else taps) // 2 + 5
    call = {"padding": padding, "gain": 3.0, "clamp": 2.0}
    for dtype in (torch.float, torch.half):
        x, b = x.to(dtype), b.to(dtype)
        check(x, b, fu=taps, fd=6, **call)
        check(x, b, fu=6, fd=taps, up=1, down=3, **call)


def test_zero_and_the_clamp_pass(device):
    """At u = 0 and |v| = clamp the derivative is 1, also of -0."""
    x = torch.tensor([0.0, -0.0, 1.0, -5.0, 1.5, -6.0, -0.5], device=device)
    x = x.double().view(1, 1, 1, 7).requires_grad_()
    y = filtered_lrelu(x, gain=1, slope=0.2, clamp=1.0)
    assert y.flatten().tolist() == [0, 0, 1, -1, 1, -1, -0.1]
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.flatten().tolist() == [1, 1, 1, 0.2, 0, 0, 0.2]


def test_nan_and_infinity_stay_where_they_are(device):
    x = torch.zeros(1, 2, 70, 70, dtype=torch.double, device=device)
    x[0, 0, 20, 30], x[0, 1, 40, 50] = float("nan"), float("inf")
    call = call_of(x, 4, 4, padding=3)
    y = filtered_lrelu(x, **call)
    torch.testing.assert_close(y, filtered_lrelu(x, **call, impl="ref"), equal_nan=True)
    assert 0 < y.isnan().sum() < 20
    y = filtered_lrelu(x, **call, clamp=1.0)
    assert y[0, 0].isnan().any()
    assert y[0, 1].max() <= 1 + 1e-6  # the taps are float: their sum is 1 but for their rounding


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double])
def test_filters_of_another_dtype(dtype, device):
    """A module's .bfloat16() converts its filters, too; taps are float32."""
    x, b = make_inputs((1, 2, 20, 20), torch.float, device)
    f = make_filter(12, device)
    actual = filtered_lrelu(x, f.to(dtype), f, b, up=2, down=2, padding=11)
    expected = filtered_lrelu(x, f.to(dtype).float(), f, b, up=2, down=2, padding=11)
    assert torch.equal(actual, expected)


def test_reference(device):
    x, b = make_inputs((2, 3, 20, 20), torch.half, device)
    call = call_of(x, padding=11)
    (chosen, *_), (exact, *_) = results(x, b, impl="ref", **call), in_double(x, b, **call)
    assert error(chosen, exact) < LIMITS[torch.half]
    with implementation("ref"):
        assert torch.equal(filtered_lrelu(x, b=b, **call), chosen)


@needs_gpu
@pytest.mark.parametrize("padding", [[11, 10, 10, 11], [8, 14, 13, 9]])
def test_signs_of_one_device_fit_the_other(dtype, padding):
    """Maps that are written on the CPU and on the GPU differ in samples next to 0 alone."""
    x, b = make_inputs((2, 3, 40, 50), dtype)
    f = make_filter(12)
    call = (2, 2, padding, 1.4, 0.2, 0.8, False, [5, 3])
    signs = [
        torch.ops.lltm_jit.filtered_lrelu_forward(*(t.to(device) for t in (x, f, f, b)), *call)[1]
        for device in ("cpu", "cuda")
    ]
    tiles = signs[0].shape[2] // 65
    (mine, its) = (s.cpu()[:, :, : 32 * tiles].contiguous().numpy().view("uint8") for s in signs)
    differ = torch.from_numpy(mine ^ its)
    wrong = sum((differ >> bit & 1).sum().item() for bit in range(8))
    assert wrong < (2e-3 if x.element_size() == 2 else 1e-5) * 8 * differ.numel()


@pytest.mark.parametrize("taps", [(None, 3), (4, (3, 2)), ((2, 5), 6)], ids=str)
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (3, 4)])
def test_gradients(up, down, taps, device):
    torch.manual_seed(3)  # with it, samples stay away from where the derivative jumps
    x, b = (t.requires_grad_() for t in make_inputs((1, 2, 4, 3), torch.double, device))
    fu, fd = (make_filter(t, device) for t in taps)
    call = {"up": up, "down": down, "padding": [6, 4, 5, 7], "flip_filter": up == 2}

    def smooth(x: Tensor, b: Tensor) -> Tensor:
        return filtered_lrelu(x, fu, fd, b, slope=0.3, clamp=0.9, **call)

    assert gradcheck(smooth, (x, b), eps=1e-7, atol=1e-4)
    assert gradgradcheck(smooth, (x, b), eps=1e-7, atol=1e-4)


def test_a_filter_that_is_changed_before_the_backward_pass_is_told(device):
    x, b = make_inputs((2, 2, 5, 4), torch.double, device)
    f = make_filter(3, device)
    y = filtered_lrelu(x.requires_grad_(), f, f, b, padding=3)
    f.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
