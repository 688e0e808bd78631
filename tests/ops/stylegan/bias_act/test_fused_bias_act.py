"""fused_bias_act, fused_leaky_relu and FusedLeakyReLU of the PyTorch port of StyleGAN2."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from op_testing import assert_accurate
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.ops.stylegan2 import FusedLeakyReLU, fused_bias_act, fused_leaky_relu


@pytest.mark.parametrize("scale", [math.sqrt(2), -0.5])
@pytest.mark.parametrize("with_bias", [True, False])
def test_raw_call_matches_its_definition(with_bias, scale, dtype, device):
    x, refer = (torch.randn(3, 5, 4, 6, device=device).to(dtype) for _ in range(2))
    empty = x.new_empty(0)
    bias = torch.randn(5, device=device).to(dtype) if with_bias else empty
    for act in (1, 3):
        for grad in (0, 1, 2):
            given = refer if grad == 1 else empty
            args = (bias, given, act, grad, 0.3, scale)
            actual = fused_bias_act(x, *args)
            exact = fused_bias_act(
                x.double(), bias.double(), given.double(), act, grad, 0.3, scale, impl="ref"
            )
            assert_accurate(actual, exact, fused_bias_act(x, *args, impl="ref"), ulps=2)
    none = fused_bias_act(x, None, None, 3, 0, 0.3, scale)
    assert torch.equal(none, fused_bias_act(x, empty, empty, 3, 0, 0.3, scale))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_the_reference_computes_in_float_and_rounds_once(dtype):
    x, refer, b = (torch.randn(size).to(dtype) for size in ((3, 5, 7), (3, 5, 7), 5))
    for act, grad in [(1, 0), (3, 0), (3, 1)]:
        rounded = fused_bias_act(x, b, refer, act, grad, 0.3, 1.7, impl="ref")
        wide = fused_bias_act(x.float(), b.float(), refer.float(), act, grad, 0.3, 1.7, impl="ref")
        assert torch.equal(rounded, wide.to(dtype))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("scale", [math.sqrt(2), -math.sqrt(2), 0.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_slope_is_applied_before_the_only_rounding(with_bias, scale, dtype, device):
    """50000 times the root of 2 is no half; a fifth of it is."""
    x = torch.tensor([[50000.0, -50000.0, 3.14, 0.1]] * 3).to(device, dtype)
    refer = torch.tensor([-1.0, 0.0, 1.0]).to(device, dtype)[:, None].expand(3, 4)
    bias = torch.tensor([1.0, -2.0, 1e-3, 0.0]).to(device, dtype) if with_bias else None
    actual = fused_bias_act(x, bias, refer, 3, 1, 0.2, scale)
    t = x.double() + (0 if bias is None else bias.double())
    exact = (torch.where(refer > 0, t, 0.2 * t) * scale).to(dtype)
    assert torch.equal(actual, exact)
    assert actual[:2].isfinite().all()


def test_gradients(device):
    x = torch.randn(2, 3, 4, dtype=torch.double, device=device, requires_grad=True)
    b = torch.randn(3, dtype=torch.double, device=device, requires_grad=True)
    refer = torch.randn_like(x)
    for scale in (1.5, -1.5):
        options = {"alpha": 0.1, "scale": scale}
        for function in (
            partial(fused_leaky_relu, negative_slope=0.1, scale=scale),
            partial(fused_bias_act, refer=refer, act=3, grad=1, **options),
            partial(fused_bias_act, refer=None, act=1, grad=0, **options),
        ):
            assert gradcheck(function, (x, b), check_forward_ad=True)
            assert gradgradcheck(function, (x, b))


@pytest.mark.parametrize("shape", [(4, 8), (2, 8, 3), (2, 8, 5, 7), (2, 8, 2, 3, 4)])
def test_leaky_relu_of_any_rank(shape, device):
    x, b = torch.randn(shape, device=device), torch.randn(8, device=device)
    along = b.view([-1 if d == 1 else 1 for d in range(x.dim())])
    torch.testing.assert_close(fused_leaky_relu(x, b, 0.3, 2.0), 2 * F.leaky_relu(x + along, 0.3))
    torch.testing.assert_close(fused_leaky_relu(x), math.sqrt(2) * F.leaky_relu(x, 0.2))


def test_module():
    module = FusedLeakyReLU(3, negative_slope=0.1, scale=2.0)
    assert list(module.state_dict()) == ["bias"]
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(module(x), 2 * F.leaky_relu(x, 0.1))
    assert FusedLeakyReLU(3, bias=False).bias is None
    torch.testing.assert_close(FusedLeakyReLU(3, bias=False)(x), fused_leaky_relu(x))


def test_a_module_is_made_where_and_as_it_is_asked():
    bias = FusedLeakyReLU(3, device="meta", dtype=torch.half).bias
    assert (bias.device.type, bias.dtype, bias.shape) == ("meta", torch.half, (3,))
    assert repr(FusedLeakyReLU(512)) == (
        "FusedLeakyReLU(channel=512, bias=True, negative_slope=0.2, scale=1.414)"
    )
    assert repr(FusedLeakyReLU(8, bias=False, scale=1)) == (
        "FusedLeakyReLU(channel=8, bias=False, negative_slope=0.2, scale=1)"
    )
