"""upfirdn2d at the borders of its kernels: sizes, paddings, filters, and tensors beyond 2^31."""

import pytest
import torch
from op_testing import for_each
from upfirdn2d_testing import FACTORS, Call, image

from lltm_jit.ops.upfirdn2d import filter2d, setup_filter, upfirdn2d

channels_last = for_each("channels_last", [False, True])


@pytest.mark.thinned
@pytest.mark.parametrize("taps", [4, 12])
@pytest.mark.parametrize(("up", "down"), FACTORS[:3])
def test_sizes_around_those_of_the_kernels(up, down, taps, channels_last, device):
    f = torch.randn(taps, device=device)
    for size in (1, 2, 31, 32, 33, 127, 128, 129, 257):
        for shape in ((1, 8, 5, size), (1, 8, size, 5)):
            x = image(*shape, dtype=torch.half, device=device, channels_last=channels_last)
            Call(x, f, up, down, [taps - 1, taps, taps, taps - 1]).check()


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("taps", [1, 3, 4, 7, 8, 9, 12])
@pytest.mark.parametrize("down", [1, 2])
def test_paddings_and_widths_of_the_16_bit_types(down, taps, channels_last, dtype, device):
    """Windows that begin anywhere in an access; one block of columns or channels, and several."""
    f = torch.randn(taps, device=device)
    for before, (channels, width) in enumerate(
        [(8, 48), (24, 16), (16, 72), (40, 8), (8, 264), (72, 16), (1, 40), (3, 80)]
    ):
        x = image(1, channels, 9, width, dtype=dtype, device=device, channels_last=channels_last)
        padding = [before + taps // 2, taps - 1, taps // 2, 11]
        Call(x, f, (1, 1), (down, down), padding).check()
    Call(x, f, (1, 1), (down, down), [-17, taps, -3, taps]).check()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_filters_of_any_scale(channels_last, dtype, device):
    """Taps that are no numbers of the dtype of x, whose results are."""
    x = image(2, 8, 24, 32, dtype=dtype, device=device, channels_last=channels_last)
    for scale in (1e-12, 1e-6, 1e6, 1e12):
        separable, full = (scale * torch.randn(taps).to(device) for taps in (12, (3, 4)))
        for down in ((1, 1), (2, 2)):
            Call(x, separable, (1, 1), down, [6, 5, 5, 6], gain=scale**-2).check()
            Call(x, full, (1, 1), down, [2, 1, 1, 2], gain=1 / scale).check()


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
@pytest.mark.parametrize("taps", [1, 3, 4, 5, 9, 12, 17])
@pytest.mark.parametrize(("up", "down"), FACTORS)
def test_infinities_stay_where_taps_are(up, down, taps, channels_last, dtype, device):
    """Also where the kernel has more taps than the filter."""
    x = image(1, 8, 40, 40, dtype=dtype, device=device, channels_last=channels_last)
    x[0, 3, 20, 17], x[0, 5, 3, 2], x[0, 1, 39, 39] = float("inf"), float("nan"), -float("inf")
    f, call = torch.rand(taps) + 0.5, (up, down, [taps, taps - 1, taps, taps + 1])
    actual = upfirdn2d(x, f.to(device), *call)
    # A filter of ones finds the results that each special value is part of.
    special = (~x.cpu().isfinite()).double()
    touched = upfirdn2d(special, torch.ones(taps), *call, impl="ref")
    assert torch.equal(actual.cpu().isfinite(), touched == 0)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
@pytest.mark.parametrize("taps", [(4, 4), (3, 2), (8, 8), (5, 7)])
@pytest.mark.parametrize(("up", "down"), FACTORS[:3])
def test_filters_of_rank_one_and_others(up, down, taps, channels_last, dtype, device):
    """An outer product with zeros, one that is nearly a product, one that is none, and zeros."""
    x = image(1, 8, 19, 32, dtype=dtype, device=device, channels_last=channels_last)
    column, row = torch.randn(taps[0]), torch.randn(taps[1])
    row[0] = 0
    product = column.outer(row)
    near = product.clone()
    near[-1, -1] *= 1.001
    for f in (product, near, torch.randn(taps), torch.zeros(taps)):
        Call(x, f.to(device), up, down, [7, 3 + taps[1], 7, 8], gain=3.0).check()


def test_padding_far_below_the_image(device):
    """Whose rows no kernel may look for in memory."""
    x, f = image(1, 1, 4, 100, dtype=torch.double, device=device), torch.ones(4, device=device)
    y = upfirdn2d(x, f, padding=[0, 0, 100_000, 100_000])
    near = upfirdn2d(x, f, padding=[0, 0, 3, 3])
    torch.testing.assert_close(y[:, :, 99_997:100_004], near)
    assert y.count_nonzero() == near.count_nonzero()


@pytest.mark.large
@pytest.mark.parametrize("shape", [(1030, 8, 512, 512), (1, 8, 16400, 16400)])
def test_beyond_31_bits(shape, channels_last, device):
    """Of the whole tensor, and of one image, against parts of it."""
    f = setup_filter([1, 3, 3, 1], device)
    x = image(*shape, dtype=torch.half, device=device, channels_last=channels_last)
    y = filter2d(x, f)
    torch.testing.assert_close(y[-1:, -1:, -99:], filter2d(x[-1:, -1:, -102:], f)[:, :, -99:])
    torch.testing.assert_close(y[:1, :1, :99], filter2d(x[:1, :1, :102], f)[:, :, :99])


@pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)
@pytest.mark.parametrize("place", [(1, 1), (0, 3), (3, 2)])
def test_a_tap_much_smaller_than_the_others_counts(place, dtype, device):
    """Such a filter is not the product of two, however small its difference from one is."""
    tap = torch.finfo(dtype).eps / 16
    f = torch.zeros(4, 4, dtype=dtype, device=device)
    f[0, 0], f[place] = 1, tap
    x = torch.zeros(1, 1, 8, 8, dtype=dtype, device=device, requires_grad=True)
    with torch.no_grad():
        x[0, 0, 4, 4] = 1
    y = upfirdn2d(x, f, padding=3, gain=1 / tap)[0, 0]
    assert sorted(y[y != 0].tolist()) == [1, 1 / tap]
    [grad] = torch.autograd.grad(y[y == 1].sum(), x)
    assert grad[0, 0, 4, 4] == 1
