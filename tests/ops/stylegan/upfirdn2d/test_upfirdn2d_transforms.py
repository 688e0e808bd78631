"""upfirdn2d under autograd and vmap, as modules, and as the port of StyleGAN2 has it."""

import pytest
import torch
from op_testing import DEVICES
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap
from upfirdn2d_testing import FACTORS, image

from lltm_jit.ops.stylegan.resample_modules import Downsample2d, Filter2d, Upsample2d
from lltm_jit.ops.stylegan2.upfirdn2d import upfirdn2d as port_upfirdn2d
from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, setup_filter, upfirdn2d, upsample2d

FILTERS = {
    "none": None,
    "separable": torch.tensor([1.0, 3.0, 2.0]),
    "2-D": torch.arange(1.0, 7.0).view(2, 3),
    "long": torch.arange(1.0, 14.0),
}


@pytest.mark.thinned
@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_over_filters(device):
    x, filters = torch.randn(2, 2, 5, 6, device=device), torch.randn(3, 3, 4, device=device)
    expected = torch.stack([filter2d(x, f) for f in filters])
    torch.testing.assert_close(vmap(filter2d, in_dims=(None, 0))(x, filters), expected)


@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.parametrize("device", DEVICES)
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
