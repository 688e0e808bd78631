"""Run with `python -m pytest`."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mingru import MinGru

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def plain(layer: MinGru, x: Tensor) -> Tensor:
    """The layer as a loop in plain PyTorch."""
    h, outputs = x.new_zeros(x.size(1), layer.hidden_size), []
    for step in x:
        z, candidate = F.linear(step, layer.weight_ih_l0, layer.bias_ih_l0).chunk(2, 1)
        h = torch.lerp(h, candidate, z.sigmoid())
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 7, 700])
def test_result_and_gradients(steps, device):
    layer = MinGru(5, 24, dtype=torch.double, device=device)
    x = torch.randn(steps, 3, 5, dtype=torch.double, device=device, requires_grad=True)
    actual, expected = layer(x)[0], plain(layer, x)
    torch.testing.assert_close(actual, expected)
    inputs = [x, *layer.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(actual.sin().sum(), inputs),
        torch.autograd.grad(expected.sin().sum(), inputs),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float])
def test_gradients_in_every_dtype(dtype, device):
    layer = MinGru(5, 24, dtype=dtype, device=device)
    x = torch.randn(7, 3, 5, dtype=dtype, device=device)
    found = torch.autograd.grad(layer(x)[0].sin().sum(), layer.parameters())
    wide = copy.deepcopy(layer).double()
    right = torch.autograd.grad(plain(wide, x.double()).sin().sum(), wide.parameters())
    error = 16 * torch.finfo(dtype).eps if dtype != torch.float else 1e-2  # a GPU may take TF32
    for actual, exact in zip(found, right, strict=True):
        assert actual.dtype == dtype
        most = exact.abs().max().item()
        torch.testing.assert_close(actual.double(), exact, rtol=error, atol=error * most)


def test_second_derivatives():
    layer = MinGru(2, 3, dtype=torch.double)
    x = torch.randn(3, 2, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], x)


def test_the_claims_of_the_header():
    MinGru.check()
