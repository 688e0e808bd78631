"""Run with `python -m pytest`."""

import pytest
import torch
from torch.library import opcheck

import soft_clip as project

DEVICES = ["cpu"] + (["cuda"] if torch.version.cuda and torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", project.TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (33,), (5, 7), (300, 401)])
def test_result(shape, dtype, device):
    x = torch.randn(shape, dtype=dtype, device=device)
    expected = (0.7 * torch.tanh(x.double() / 0.7)).to(dtype)
    torch.testing.assert_close(project.soft_clip(x, 0.7), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device):
    x = torch.randn(30, 40, device=device).t()
    torch.testing.assert_close(project.soft_clip(x, 2.0), 2 * torch.tanh(x / 2))


@pytest.mark.parametrize("device", DEVICES)
def test_gradient(device):
    x = torch.randn(3, 4, dtype=torch.double, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(project.soft_clip, (x, 0.7))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", project.TYPES)
def test_gradients_in_every_dtype(dtype, device):
    x, grad = torch.randn(2, 5, 7, dtype=dtype, device=device).unbind()
    leaf = x.requires_grad_()
    (actual,) = torch.autograd.grad(project.soft_clip(leaf, 0.7), leaf, grad)
    expected = grad.double() * (1 - torch.tanh(x.detach().double() / 0.7) ** 2)
    torch.testing.assert_close(actual, expected.to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_in_torch_compile(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    opcheck(project.soft_clip, (x, 0.7))
    compiled = torch.compile(project.soft_clip, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, 0.7), project.soft_clip(x, 0.7))


@pytest.mark.skipif(not torch.version.cuda, reason="needs a torch with CUDA, but no GPU")
@pytest.mark.parametrize("dtype", project.TYPES)
def test_the_kernels_compile(dtype):
    assert [each.name.partition("<")[0] for each in project.kernels(dtype)] == [
        "soft_clip",
        "soft_clip_backward",
    ]


def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match=r"expected x to be one of .*, but got torch\.int32"):
        project.kernels(torch.int)
