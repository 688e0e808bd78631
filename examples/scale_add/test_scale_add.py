"""Run with `python -m pytest`."""

import pytest
import torch
from scale_add import cuda, scale_add

DEVICES = ["cpu"] + (["cuda"] if cuda and torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (33,), (5, 7), (300, 401)])
def test_result(shape, dtype, device):
    x, y = torch.randn(2, *shape, dtype=dtype, device=device)
    torch.testing.assert_close(scale_add(x, y, 3.0), 3 * x + y)


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device):
    x, y = torch.randn(2, 30, 40, device=device)
    torch.testing.assert_close(scale_add(x.t(), y.t()[:1].expand(40, 30), 2), 2 * x.t() + y.t()[:1])


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x, y = torch.randn(2, 3, 4, dtype=torch.double, device=device).requires_grad_().unbind()
    assert torch.autograd.gradcheck(lambda x, y: scale_add(x, y, 3.0), (x, y))
    assert torch.autograd.gradgradcheck(lambda x, y: scale_add(x, y, 3.0), (x, y))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(2), torch.ones(3), r"expected y to have the shape of x \[2\], but got \[3\]"),
        (torch.ones(2).int(), torch.ones(2), r"expected x to be float or double, but got Int"),
        (torch.ones(2), torch.ones(2).double(), r"the dtype of x \(Float\), but got Double"),
    ],
)
def test_bad_input(x, y, message):
    with pytest.raises(RuntimeError, match=message):
        scale_add(x, y, 1.0)
