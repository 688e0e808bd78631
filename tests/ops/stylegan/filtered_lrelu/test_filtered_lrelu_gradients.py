"""filtered_lrelu: derivatives of every order, torch.compile, export and the transforms of torch."""

import pytest
import torch
from flr_testing import make_filter, make_inputs
from op_testing import DEVICES
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("taps", [(None, 3), (4, (3, 2)), ((2, 5), 6)], ids=str)
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (3, 4)])
def test_gradients(up, down, taps, device):
    torch.manual_seed(3)  # with it, samples stay away from where the derivative jumps
    x, b = (t.requires_grad_() for t in make_inputs((1, 2, 4, 3), torch.double, device))
    fu, fd = (make_filter(t, device) for t in taps)
    call = {"up": up, "down": down, "padding": [6, 4, 5, 7], "flip_filter": up == 2}

    def smooth(x: Tensor, b: Tensor) -> Tensor:
        return filtered_lrelu(x, fu, fd, b, slope=0.3, clamp=0.9, **call)

    assert gradcheck(smooth, (x, b), eps=1e-7, atol=1e-4)
    assert gradgradcheck(smooth, (x, b), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_a_filter_that_is_changed_before_the_backward_pass_is_told(device):
    x, b = make_inputs((2, 2, 5, 4), torch.double, device)
    f = make_filter(3, device)
    y = filtered_lrelu(x.requires_grad_(), f, f, b, padding=3)
    f.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
