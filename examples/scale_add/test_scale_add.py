"""Run with `python -m pytest`."""

import pytest
import torch
from lltm_jit.jit import detect
from torch.library import opcheck

from scale_add import scale_add

DEVICES = ["cpu"] + (["cuda"] if detect().cuda and torch.cuda.is_available() else [])

DTYPES = [torch.half, torch.bfloat16, torch.float, torch.double]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (33,), (5, 7), (300, 401)])
def test_result(shape, dtype, device):
    x, y = torch.randn(2, *shape, dtype=dtype, device=device)
    expected = (0.7 * x.double() + y.double()).to(dtype)
    torch.testing.assert_close(scale_add(x, y, 0.7), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device):
    x = torch.randn(30, 40, device=device).t()
    y = x[:1].expand(40, 30)
    torch.testing.assert_close(scale_add(x, y, 2), 2 * x + y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_and_vmap_in_every_dtype(dtype, device):
    x, y, grad = torch.randn(3, 5, 7, dtype=dtype, device=device).unbind()
    leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
    found = torch.autograd.grad(scale_add(*leaves, 0.7), leaves, grad)
    expected = (0.7 * grad.double()).to(dtype), grad
    torch.testing.assert_close(found, expected)
    mapped = torch.vmap(scale_add, in_dims=(0, 0, None))(x, y, 0.7)
    torch.testing.assert_close(mapped, (0.7 * x.double() + y.double()).to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x, y = torch.randn(2, 3, 4, dtype=torch.double, device=device).requires_grad_()
    assert torch.autograd.gradcheck(scale_add, (x, y, 0.7))
    assert torch.autograd.gradgradcheck(scale_add, (x, y, 0.7))


@pytest.mark.parametrize("device", DEVICES)
def test_in_torch_compile_and_vmap(device):
    x, y = torch.randn(2, 3, 4, device=device).requires_grad_().unbind()
    opcheck(torch.ops.scale_add.scale_add, (x, y, 0.7))
    mapped = torch.vmap(scale_add, in_dims=(0, 0, None))(x, y, 0.7)
    torch.testing.assert_close(mapped, scale_add(x, y, 0.7))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(2), torch.ones(3), r"expected y to have shape x.shape = \[2\], but got \[3\]"),
        (torch.ones(2).int(), torch.ones(2), r"expected x to have dtype .*, but got Int"),
        (torch.ones(2), torch.ones(2).double(), r"the dtype of x \(Float\), but got Double"),
    ],
)
def test_bad_input(x, y, message):
    with pytest.raises(RuntimeError, match=message):
        scale_add(x, y, 0.7)
