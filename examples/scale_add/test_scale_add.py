"""Run with `python -m pytest`."""

import pytest
import torch
from scale_add import scale_add, tools
from torch.library import opcheck

DEVICES = ["cpu"] + (["cuda"] if tools.cuda and torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (33,), (5, 7), (300, 401)])
def test_result(shape, dtype, device):
    x, y, scale = torch.randn(3, *shape, dtype=dtype, device=device)
    expected = (scale.double() * x.double() + y.double()).to(dtype)
    torch.testing.assert_close(scale_add(x, y, scale), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device):
    x, y = torch.randn(2, 30, 40, device=device)
    scale = y[:1].expand(30, 40)
    torch.testing.assert_close(scale_add(x.t(), y.t(), scale.t()), scale.t() * x.t() + y.t())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    inputs = torch.randn(3, 3, 4, dtype=torch.double, device=device).requires_grad_().unbind()
    assert torch.autograd.gradcheck(scale_add, inputs)
    assert torch.autograd.gradgradcheck(scale_add, inputs)


@pytest.mark.parametrize("device", DEVICES)
def test_in_torch_compile_and_vmap(device):
    inputs = torch.randn(3, 3, 4, device=device).requires_grad_().unbind()
    opcheck(torch.ops.scale_add.scale_add, inputs)
    torch.testing.assert_close(torch.vmap(scale_add)(*inputs), scale_add(*inputs))


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
        scale_add(x, y, x)
