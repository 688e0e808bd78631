"""upfirdn2d beside its definition and SciPy, with its derivatives, and what is made of it."""

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.signal
import torch
import torch.nn.functional as F
from op_testing import DTYPES, assert_threads_change_no_bit, results_and_gradients
from subclasses import Logged, Recorder
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap
from upfirdn2d_testing import FACTORS, Call, image, random_call

from lltm_jit.ops.stylegan.resample_modules import Downsample2d, Filter2d, Upsample2d
from lltm_jit.ops.stylegan2.upfirdn2d import upfirdn2d as port_upfirdn2d
from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, setup_filter, upfirdn2d, upsample2d


def test_agrees_with_scipy(device):
    rng = np.random.default_rng(0)
    for _ in range(300):
        up, down, taps = (rng.integers(1, high, 2) for high in (5, 5, 65))
        h = [rng.standard_normal(n) / n for n in taps]
        x = rng.standard_normal((1, 2, *rng.integers(1, 40, 2)))
        expected = x
        for axis in (0, 1):
            expected = scipy.signal.upfirdn(h[axis], expected, up[axis], down[axis], axis=3 - axis)
        padding = [int(n) for axis in (0, 1) for n in (taps[axis] - 1, taps[axis] - up[axis])]
        f = torch.from_numpy(np.outer(h[1], h[0])).to(device)
        actual = upfirdn2d(torch.from_numpy(x).to(device), f, up.tolist(), down.tolist(), padding)
        np.testing.assert_allclose(actual.cpu(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("taps", [1, 3, 4, 7, 8, 12, 13, 24, 25, 64])
def test_separable_filters_agree_with_scipy(taps, device):
    rng = np.random.default_rng(taps)
    h, x = rng.standard_normal(taps) / taps, rng.standard_normal((1, 3, 21, 34))
    image, f = torch.from_numpy(x).float().to(device), torch.from_numpy(h).float().to(device)
    for up, down in itertools.product((1, 2, 3), repeat=2):
        expected = scipy.signal.upfirdn(h, x, up, down, axis=2)
        expected = scipy.signal.upfirdn(h, expected, up, down, axis=3)
        actual = upfirdn2d(image, f, up, down, [taps - 1, taps - up] * 2)
        np.testing.assert_allclose(actual.cpu(), expected, atol=1e-5)


def test_matches_float64(dtype, device):
    """Random factors, filters, paddings, layouts, flips and gains."""
    for seed in range(50):
        random_call(seed, dtype, device).check()


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8), (2, 3, 0, 8), (2, 3, 8, 0)])
def test_empty(shape, device):
    x, f = torch.zeros(shape, device=device, requires_grad=True), torch.ones(4, device=device)
    y = upfirdn2d(x, f, up=2, padding=4)
    assert torch.autograd.grad(y.sum(), x)[0].shape == shape
    assert torch.equal(y, torch.zeros(*shape[:2], *(2 * n + 5 for n in shape[2:]), device=device))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double])
def test_the_filter_has_a_dtype_of_its_own(dtype, device):
    for taps in (4, 12, 30):
        for of_x in DTYPES:
            x = torch.randn(2, 8, 9, 7, device=device).to(of_x)
            f = torch.randn(taps, device=device).to(dtype)
            Call(x, f, (2, 2), padding=[taps] * 4).check()


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_number_of_threads_changes_no_bit(format):
    x = torch.randn(2, 5, 37, 61).to(memory_format=format).requires_grad_()
    f = setup_filter([1, 3, 3, 1])
    assert_threads_change_no_bit(
        lambda: results_and_gradients(lambda x: upsample2d(downsample2d(x, f), f), [x])
    )


def test_16_bit_results_are_rounded_once(device):
    """Intermediate values are no multiples of the dtype's steps."""
    x = torch.full((1, 8, 16, 16), 1 + 2**-9, device=device, dtype=torch.half)
    f = torch.tensor([1.0, 2**-9], device=device)
    exact = ((1 + 2**-9) ** 3) * torch.ones(1, 8, 15, 15, dtype=torch.double)
    assert torch.equal(upfirdn2d(x, f).cpu(), exact.half())


def test_setup_filter():
    expected = torch.tensor([1.0, 3, 3, 1]).outer(torch.tensor([1.0, 3, 3, 1])) / 64
    assert torch.equal(setup_filter([1, 3, 3, 1]), expected)
    assert torch.equal(setup_filter(np.array([1, 3, 3, 1]), gain=4), 4 * expected)
    assert torch.equal(setup_filter([1] * 8), torch.full((8,), 1 / 8))
    assert torch.equal(setup_filter([1, 3], separable=True, gain=4), torch.tensor([0.5, 1.5]))
    flipped = setup_filter([1, 3], normalize=False, flip_filter=True, separable=True)
    assert flipped.tolist() == [3, 1]
    assert torch.equal(setup_filter(None), torch.ones(1, 1))
    assert torch.equal(setup_filter(5), torch.ones(1, 1))
    mine = torch.tensor([[1.0, 2.0]])
    assert setup_filter(mine, normalize=False).data_ptr() != mine.data_ptr()
    setup_filter(mine)
    assert torch.equal(mine, torch.tensor([[1.0, 2.0]]))
    assert setup_filter(mine.double()).dtype == torch.float


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 8, 12])
def test_paddings(taps, device):
    x = torch.randn(1, 2, 8, 12, device=device)
    f = torch.randn(taps, taps + 1, device=device)
    same = filter2d(x, f)
    sides = [(taps + 1) // 2, taps // 2, taps // 2, (taps - 1) // 2]
    assert torch.equal(same, upfirdn2d(x, f, padding=sides))
    assert same.shape == x.shape
    assert filter2d(x, f, [1, 2, 3, 4]).shape == (1, 2, 15, 15)
    for factor in (1, 2, 3):
        up = upsample2d(x, f, factor, gain=3)
        after = [(taps + 1 - factor) // 2, (taps - factor) // 2]
        sides = [(taps + factor) // 2, after[0], (taps + factor - 1) // 2, after[1]]
        assert torch.equal(up, upfirdn2d(x, f, factor, 1, sides, gain=3 * factor**2))
        down = downsample2d(x, f, factor)
        sides = [(taps - factor + 2) // 2, after[0], (taps - factor + 1) // 2, after[1]]
        assert torch.equal(down, upfirdn2d(x, f, 1, factor, sides))
    assert upsample2d(x, f, [3, 2], [1, 0]).shape == (1, 2, 16, 38)


@pytest.mark.parametrize("taps", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("padding", [0, (1, 2), [1, 0, -1, 2]])
def test_subclasses_and_numpy_get_the_same(taps, padding):
    """The kernels' module takes plain tensors alone, and the rest is the operator's."""
    x = torch.randn(1, 2, 8, 12)
    f = torch.randn(taps, taps + 1) if taps else None
    for function in (
        partial(upfirdn2d, up=(2, 1), down=[1, 2], padding=padding, gain=1.5),
        partial(filter2d, padding=padding),
        partial(upsample2d, up=[3, 2], padding=padding),
        partial(downsample2d, down=(2, 3), padding=padding),
    ):
        expected = function(x, f)
        actual = function(x.as_subclass(Logged), f)
        assert type(actual) is Logged
        assert torch.equal(actual.as_subclass(torch.Tensor), expected)
        with Recorder() as recorder:
            assert torch.equal(function(x, f), expected)
        assert "lltm_jit.upfirdn2d" in recorder.calls
    for up, padding in [(np.int64(3), np.int32(1)), ([np.int64(3)] * 2, (np.int32(1),) * 4)]:
        assert torch.equal(upsample2d(x, f, up, padding), upsample2d(x, f, 3, 1))


def test_the_reference_is_the_definition():
    """Zeros, padding, products, and every down-th, written out."""
    x, f = torch.randn(5, dtype=torch.double), torch.randn(4, dtype=torch.double)
    padded = F.pad(torch.stack([x, *torch.zeros(2, 5)], 1).flatten(), (3, 2))
    products = padded.unfold(0, 4, 1) @ f.flip(0)
    expected = 1.5 * products[::2]
    call = ((3, 1), (2, 1), [3, 2, 0, 0], False, 1.5)
    actual = upfirdn2d(x.view(1, 1, 1, 5), f.view(1, 4), *call, impl="ref")
    torch.testing.assert_close(actual.flatten(), expected)


FILTERS = {
    "none": None,
    "separable": torch.tensor([1.0, 3.0, 2.0]),
    "2-D": torch.arange(1.0, 7.0).view(2, 3),
    "long": torch.arange(1.0, 14.0),
}


@pytest.mark.thinned
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("up", "down"), FACTORS)
@pytest.mark.parametrize("flip", [False, True])
def test_gradients(flip, up, down, name, device):
    f = None if FILTERS[name] is None else FILTERS[name].to(device)
    padding = [12, -1, 3, 12] if name == "long" else [2, -1, 3, 1]

    def function(x):
        return upfirdn2d(x, f, up, down, padding, flip, 0.5)

    x = image(1, 2, 3, 4, dtype=torch.double, device=device).requires_grad_()
    assert gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, x)


@pytest.mark.parametrize("function", [upsample2d, downsample2d, filter2d])
@pytest.mark.parametrize("taps", [4, 5, 12])
def test_gradients_of_wide_images(taps, function, device):
    """Through the kernels for large images, in float and both memory formats."""
    f = torch.randn(taps, device=device)
    for channels_last in (False, True):
        x = image(2, 8, 36, 52, device=device, channels_last=channels_last).requires_grad_()
        results = [function(x, f, impl=impl) for impl in ("cuda", "ref")]
        weight = torch.randn_like(results[0])
        actual, expected = (torch.autograd.grad(y, x, weight)[0] for y in results)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
        assert actual.stride() == x.stride()


def test_vmap_over_filters(device):
    x, filters = torch.randn(2, 2, 5, 6, device=device), torch.randn(3, 3, 4, device=device)
    expected = torch.stack([filter2d(x, f) for f in filters])
    torch.testing.assert_close(vmap(filter2d, in_dims=(None, 0))(x, filters), expected)


def test_modules(device):
    x, f = torch.randn(2, 3, 8, 8, device=device), setup_filter([1, 3, 3, 1], device)
    pairs = [
        (Upsample2d([1, 3, 3, 1], gain=2), upsample2d(x, f, gain=2)),
        (Downsample2d([1, 3, 3, 1], down=4), downsample2d(x, f, 4)),
        (Filter2d([1, 3, 3, 1], padding=1), filter2d(x, f, 1)),
    ]
    for module, expected in pairs:
        module = module.to(device)
        torch.testing.assert_close(module(x), expected)
        assert module.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
        assert list(module.state_dict()) == ["f"]
    assert str(Upsample2d([1, 3], up=2)) == "Upsample2d(2, taps=[2, 2])"


@pytest.mark.parametrize("dtype", [torch.half, torch.float])
def test_the_port_of_stylegan2(dtype, device):
    x = torch.randn(2, 3, 8, 9, device=device).to(dtype)
    kernel = torch.randn(3, 4, device=device).to(dtype)
    for up, down, pad in ((1, 1, (0, 0)), (2, 1, (2, 1)), (1, 2, (1, 3)), (2, 2, (3, -1))):
        expected = upfirdn2d(x, kernel, up, down, [*pad, *pad], impl="ref")
        for call in ((up, down, pad), (up, up, down, down, *pad, *pad)):
            torch.testing.assert_close(port_upfirdn2d(x, kernel, *call), expected)
    expected = upfirdn2d(x, kernel, (1, 2), (3, 1), [4, 5, 2, 3], impl="ref")
    torch.testing.assert_close(port_upfirdn2d(x, kernel, 1, 2, 3, 1, 4, 5, 2, 3), expected)
