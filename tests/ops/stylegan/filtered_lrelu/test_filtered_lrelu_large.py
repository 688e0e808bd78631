"""filtered_lrelu on tensors of more than 2^31 elements."""

import pytest
import torch
from flr_testing import LIMITS, error, make_filter
from op_testing import needs_gpu

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu

UP_AND_DOWN = {"up": 2, "down": 2, "padding": [11, 10, 11, 10]}


@pytest.mark.large
@needs_gpu
@pytest.mark.parametrize("taps", [12, (12, 12)])  # on tensor cores, and not
@pytest.mark.parametrize("shape", [(4100, 8, 256, 256), (1, 8, 16400, 16400)])
def test_beyond_31_bits(shape, taps):
    """Of the whole tensor, and of one image: the last plane against the same one alone."""
    fu, fd = make_filter(taps, "cuda"), make_filter(taps, "cuda")
    x = torch.randn(shape, device="cuda", dtype=torch.half, requires_grad=True)
    b = torch.randn(shape[1], device="cuda", dtype=torch.half, requires_grad=True)

    def results(x, b):
        y = filtered_lrelu(x, fu, fd, b, **UP_AND_DOWN)
        return y.detach()[-1:, -1:], torch.autograd.grad(y, x, y.detach())[0][-1:, -1:]

    last, bias = (part.detach().requires_grad_() for part in (x[-1:, -1:], b[-1:]))
    (y, grad), (alone, grad_alone) = results(x, b), results(last, bias)
    assert error(y, alone) < 2 * LIMITS[torch.half]
    assert error(grad, grad_alone) < 1e-2  # a sample next to 0 may have another sign
