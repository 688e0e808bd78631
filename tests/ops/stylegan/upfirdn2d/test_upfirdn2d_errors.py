"""upfirdn2d: wrong arguments, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from op_testing import needs_gpu, refusal

from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, upfirdn2d, upsample2d

X, TAPS = torch.zeros(1, 2, 5, 6), torch.ones(4)
BAD_INPUTS = {
    "rank": ((X[0], TAPS),
             "x to have 4 dimensions [batch_size, channels, height, width], "
             "but got shape [2, 5, 6]"),
    "dtype": ((X.int(), TAPS), "x to have dtype Half, BFloat16, Float or Double, but got Int"),
    "filter dtype": ((X, TAPS.int()),
             "f to have dtype Half, BFloat16, Float or Double, but got Int"),
    "filter rank": ((X, torch.ones(1, 1, 1)),
             "f to have shape [taps] or [taps_y, taps_x], but got [1, 1, 1]"),
    "no taps": ((X, torch.ones(0)), "f to have at least one tap, but got shape [0]"),
    "filter device": ((X, TAPS.to("meta")), "f to be on the device of x (cpu), but got meta"),
    "up": ((X, TAPS, 0), "up to be two positive numbers [x, y], but got [0, 0]"),
    "down": ((X, TAPS, 1, [1, -1]), "down to be two positive numbers [x, y], but got [1, -1]"),
    "width": ((X, TAPS, 1, 1, [-3, 0, 0, 0]),
             "the width of the upsampled and padded x to be at least the 4 taps of the filter, "
             "but got 3"),
    "height": ((X, torch.ones(8, 1), 1, 1, 1),
             "the height of the upsampled and padded x to be at least the 8 taps of the filter, "
             "but got 7"),
    "gradient": ((X, TAPS.clone().requires_grad_()),
             "f not to require a gradient, since it gets none; pass f.detach()"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input(case):
    inputs, message = BAD_INPUTS[case]
    assert refusal(RuntimeError, upfirdn2d, *inputs) == f"upfirdn2d(): expected {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"up": [1, 2, 3]}, "up to be an int or [x, y], but got [1, 2, 3]"),
        ({"up": [1, 2.5]}, "up to be an int or [x, y], but got [1, 2.5]"),
        ({"up": np.array([2, 2])}, "up to be an int or [x, y], but got array([2, 2])"),
        ({"down": 1.5}, "down to be an int or [x, y], but got 1.5"),
        ({"padding": [1, 2, 3]},
         "padding to be an int, [x, y] or [x0, x1, y0, y1], but got [1, 2, 3]"),
        ({"padding": "same"}, "padding to be an int, [x, y] or [x0, x1, y0, y1], but got 'same'"),
        ({"impl": "fast"}, "impl to be 'cuda' or 'ref', but got 'fast'"),
    ],
)  # fmt: skip
def test_bad_options(options, message):
    assert refusal(ValueError, upfirdn2d, X, TAPS, **options) == f"upfirdn2d(): expected {message}"


@pytest.mark.parametrize(("gain", "got"), [("1", "str"), (None, "None")])
def test_a_gain_that_is_no_number(gain, got):
    said = refusal(TypeError, upfirdn2d, X, TAPS, gain=gain)
    assert said == f"upfirdn2d(): expected gain to be a number, but got {got}"


@pytest.mark.parametrize("function", [upfirdn2d, filter2d, upsample2d, downsample2d])
def test_what_is_no_tensor(function):
    with pytest.raises(TypeError, match=r"\(\): expected x to be a tensor, but got list"):
        function([1.0], TAPS)
    with pytest.raises(TypeError, match=r"\(\): expected f to be a tensor or None, but got list"):
        function(X, [1.0])


@needs_gpu
def test_a_filter_on_the_cpu_is_refused():
    message = "upfirdn2d(): expected f to be on the device of x (cuda:0), but got cpu"
    assert refusal(RuntimeError, upfirdn2d, X.cuda(), TAPS) == message
