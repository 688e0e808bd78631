"""Run with `python -m pytest`."""

import pytest
import torch
from lltm_jit.jit import detect
from torch.library import opcheck

from unit_rows import unit_rows

DEVICES = ["cpu"] + (["cuda"] if detect().cuda and torch.cuda.is_available() else [])

DTYPES = [torch.half, torch.bfloat16, torch.float, torch.double]


def plain(x, eps=1e-6):
    return x / ((x * x).sum(-1, keepdim=True) + eps).sqrt()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (4, 0), (1,), (33,), (5, 7), (300, 401), (2, 3, 1000)])
def test_result(shape, dtype, device):
    x = torch.randn(shape, dtype=dtype, device=device)
    torch.testing.assert_close(unit_rows(x), plain(x.double()).to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device):
    x = torch.randn(30, 40, device=device).t()
    torch.testing.assert_close(unit_rows(x, 0.5), plain(x, 0.5))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [5, 1000])  # of numbers whose squares' sum exceeds 65504
def test_gradients_and_vmap_in_every_dtype(size, dtype, device):
    x, grad = (30 * torch.randn(2, 3, size, dtype=torch.double, device=device)).to(dtype).unbind()
    found, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    y, expected = unit_rows(found), plain(exact)
    [actual] = torch.autograd.grad(y, found, grad)
    [right] = torch.autograd.grad(expected, exact, grad.double())
    assert actual.dtype == y.dtype == dtype
    most = right.abs().max().item()
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), right, rtol=error, atol=error * most + 1e-8)
    torch.testing.assert_close(torch.vmap(unit_rows)(x), expected.to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x = torch.randn(3, 4, dtype=torch.double, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(unit_rows, (x, 0.5))
    assert torch.autograd.gradgradcheck(unit_rows, (x, 0.5))


@pytest.mark.parametrize("device", DEVICES)
def test_in_torch_compile_and_vmap(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    opcheck(torch.ops.unit_rows.unit_rows, (x, 0.5))
    torch.testing.assert_close(torch.vmap(unit_rows)(x), unit_rows(x))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(2).int(), r"expected x to have dtype .*, but got Int"),
        (torch.tensor(1.0), r"expected x to have rows, but got a single number"),
    ],
)
def test_bad_input(x, message):
    with pytest.raises(RuntimeError, match=message):
        unit_rows(x)
