"""What wrong arguments of StyleGAN's operators are told; test_arguments.py has their rules."""

import numpy as np
import pytest
import torch
from op_testing import refusal

from lltm_jit.ops.bias_act import activation_funcs, bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.grid_sample import grid_sample
from lltm_jit.ops.stylegan2 import fused_bias_act, fused_leaky_relu
from lltm_jit.ops.stylegan2.upfirdn2d import upfirdn2d as port_upfirdn2d
from lltm_jit.ops.upfirdn2d import downsample2d, filter2d, setup_filter, upfirdn2d, upsample2d

X, B, TAPS = torch.zeros(2, 3, 8, 9), torch.zeros(3), torch.ones(4)
KERNEL, GRID = torch.zeros(5, 3, 3, 3), torch.zeros(2, 5, 6, 2)
SIGNS = torch.zeros(2, 3, 65, dtype=torch.int)
ACTS = ", ".join(map(repr, activation_funcs))
REF = {"impl": "ref"}
FLOATING = "to have dtype Half, BFloat16, Float or Double, but got"
PADDING = "padding to be an int, [x, y] or [x0, x1, y0, y1], but got"
GRID_SHAPE = "grid to have shape [N, H_out, W_out, 2] with N = 2, but got"
IMPL = "impl to be 'cuda' or 'ref', but got"
RANK_4, NOT_3 = "to have 4 dimensions", "but got shape [3, 8, 9]"
FLAT_OR_SQUARE = "to have shape [taps] or [taps_y, taps_x], but got [1, 2, 2]"
ROOM = "of the upsampled and padded x to be at least the"
TAPS_0_TO_2 = "f to have 0 to 2 dimensions and at least one tap, but got shape"


def fused(**changed: object) -> torch.Tensor:
    call = {"bias": B, "refer": None, "act": 3, "grad": 0, "alpha": 0.2, "scale": 1.0}
    return fused_bias_act(**{"input": X, **call, **changed})


def bias_act_backward(saved: torch.Tensor | None) -> None:
    kind = (1, 4, 0.0, 1.0, None, [True, False])
    torch.ops.lltm_jit.bias_act_backward(X, saved, None, *kind)


def filtered_lrelu_linear(signs: torch.Tensor, size: tuple[int, ...] = (8, 9)) -> None:
    call = (1, 1, [0, 0, 0, 0], size, [0, 0], [0, 0], 1.0, 0.2, False, False)
    torch.ops.lltm_jit.filtered_lrelu_linear(X, signs, None, None, *call)


# Arguments, and what is said of them.
REFUSED = {
    (bias_act, RuntimeError): [
        ({"b": X}, "b to have 1 dimensions [channels], but got shape [2, 3, 8, 9]"),
        ({"b": B, "dim": 2}, "b to have shape [x.shape[2]] = [8], but got [3]"),
        ({"b": B[:1], **REF}, "b to have shape [x.shape[1]] = [3], but got [1]"),
        ({"b": B, "dim": 4}, "dim to be one of the 4 dimensions of x, but got 4"),
        ({"clamp": -1.0}, "clamp to be None or not negative, but got -1"),
        ({"clamp": -1.0, **REF}, "clamp to be None or not negative, but got -1"),
    ],
    (bias_act, ValueError): [
        ({"act": "gelu"}, f"act to be one of {ACTS}, but got 'gelu'"),
        ({"act": []}, f"act to be one of {ACTS}, but got []"),
        ({"impl": "cpu"}, f"{IMPL} 'cpu'"),
    ],
    (bias_act, TypeError): [
        ({"dim": "1"}, "dim to be an int, but got str"),
        ({"alpha": "1"}, "alpha to be a number, but got str"),
        ({"gain": "1"}, "gain to be a number, but got str"),
        ({"clamp": "1"}, "clamp to be a number or None, but got str"),
    ],
    (bias_act_backward, RuntimeError): [
        ({"saved": None}, "saved to be a tensor, but got None"),
        ({"saved": B}, "saved to have shape grad.shape = [2, 3, 8, 9], but got [3]"),
    ],
    (fused, RuntimeError): [
        *(
            ({**changed, **impl}, message)
            for impl in ({}, REF)
            for changed, message in (
                ({"bias": X[0, 0, 0]}, "bias to have shape [input.shape[1]] = [3], but got [9]"),
                ({"input": B}, "dim to be one of the 1 dimensions of input, but got 1"),
                ({"act": 2}, "act to be 1 (linear) or 3 (leaky ReLU), but got 2"),
                ({"grad": 3}, "grad to be 0, 1 or 2, but got 3"),
                ({"grad": 1}, "refer to be a tensor for act 3 and grad 1, but got None"),
                (
                    {"refer": B, "grad": 1},
                    "refer to have shape input.shape = [2, 3, 8, 9], but got [3]",
                ),
            )
        ),
    ],
    (upfirdn2d, RuntimeError): [
        ({"x": X[0]}, f"x {RANK_4} [batch_size, channels, height, width], {NOT_3}"),
        ({"f": TAPS.int()}, f"f {FLOATING} Int"),
        ({"f": TAPS.view(1, 2, 2)}, f"f {FLAT_OR_SQUARE}"),
        ({"f": TAPS[:0]}, "f to have at least one tap, but got shape [0]"),
        ({"f": TAPS.to("meta")}, "f to be on the device of x (cpu), but got meta"),
        ({"up": 0}, "up to be two positive numbers [x, y], but got [0, 0]"),
        ({"down": [1, -1]}, "down to be two positive numbers [x, y], but got [1, -1]"),
        ({"padding": [-6, 0, 0, 0]}, f"the width {ROOM} 4 taps of the filter, but got 3"),
        (
            {"f": torch.ones(11, 1), "padding": 1},
            f"the height {ROOM} 11 taps of the filter, but got 10",
        ),
        (
            {"f": TAPS.clone().requires_grad_()},
            "f not to require a gradient, since it gets none; pass f.detach()",
        ),
    ],
    (upfirdn2d, ValueError): [
        ({"up": [1, 2, 3]}, "up to be an int or [x, y], but got [1, 2, 3]"),
        ({"up": [1, 2.5]}, "up to be an int or [x, y], but got [1, 2.5]"),
        ({"up": np.array([2, 2])}, "up to be an int or [x, y], but got array([2, 2])"),
        ({"down": 1.5}, "down to be an int or [x, y], but got 1.5"),
        ({"padding": [1, 2, 3]}, f"{PADDING} [1, 2, 3]"),
        ({"padding": "same"}, f"{PADDING} 'same'"),
        ({"impl": "fast"}, f"{IMPL} 'fast'"),
    ],
    (upfirdn2d, TypeError): [
        ({"gain": "1"}, "gain to be a number, but got str"),
        ({"gain": None}, "gain to be a number, but got None"),
        ({"f": [1.0]}, "f to be a tensor or None, but got list"),
    ],
    **{
        (function, TypeError): [({"x": [1.0]}, "x to be a tensor, but got list")]
        for function in (filter2d, upsample2d, downsample2d)
    },
    (port_upfirdn2d, RuntimeError): [
        ({"kernel": TAPS}, "kernel to have 2 dimensions [taps_y, taps_x], but got shape [4]"),
    ],
    (port_upfirdn2d, ValueError): [
        ({"pad": (1, 2, 3)}, "pad to be (before, after) or (x0, x1, y0, y1), but got (1, 2, 3)"),
    ],
    (port_upfirdn2d, TypeError): [({"kernel": [[1.0]]}, "kernel to be a tensor, but got list")],
    (fused_leaky_relu, TypeError): [({"input": 1.0}, "input to be a tensor, but got float")],
    (setup_filter, ValueError): [
        ({"f": [[[1.0]]]}, f"{TAPS_0_TO_2} [1, 1, 1]"),
        ({"f": []}, f"{TAPS_0_TO_2} [0]"),
        (
            {"f": [[1.0]], "separable": True},
            "f to have 1 dimension for a separable filter, but got shape [1, 1]",
        ),
    ],
    (filtered_lrelu, RuntimeError): [
        ({"x": X[0]}, f"x {RANK_4} [batch, channels, height, width], {NOT_3}"),
        ({"b": B[:2]}, "b to have shape [channels] = [3], but got [2]"),
        ({"fu": TAPS.int()}, f"fu {FLOATING} Int"),
        ({"fd": TAPS.to("meta")}, "fd to be on the device of x (cpu), but got meta"),
        ({"fu": TAPS.view(1, 2, 2)}, f"fu {FLAT_OR_SQUARE}"),
        ({"fd": TAPS[:0]}, "fd to have at least one tap, but got shape [0]"),
        ({"up": 0}, "up to be from 1 to 1024, but got 0"),
        ({"down": -2}, "down to be from 1 to 1024, but got -2"),
        ({"clamp": -0.5}, "clamp to be None or at least 0, but got -0.5"),
        ({"clamp": float("nan")}, "clamp to be None or at least 0, but got nan"),
        *(
            (
                {"fu": torch.ones(12), **impl},  # neither side has room, and the height is first
                "the height of x, times up and with the padding, to be at least 12 for the "
                "filters, but got 8",
            )
            for impl in ({}, REF)
        ),
        (
            {"padding": [-8, -1, 0, 0]},
            "the width of x, times up and with the padding, to be at least 1 for the filters, "
            "but got 0",
        ),
    ],
    (filtered_lrelu, ValueError): [
        *(
            ({"padding": padding}, f"{PADDING} {padding!r}")
            for padding in ([1, 2, 3], [], 1.5, None, [1, 2.5], "same")
        ),
        ({"impl": "cpu"}, f"{IMPL} 'cpu'"),
    ],
    (filtered_lrelu, TypeError): [
        *(({name: "2"}, f"{name} to be an int, but got str") for name in ("up", "down")),
        *(({name: "2"}, f"{name} to be a number, but got str") for name in ("gain", "slope")),
        ({"clamp": "2"}, "clamp to be a number or None, but got str"),
        *(({name: 0.5}, f"{name} to be a tensor or None, but got float") for name in ("fu", "fd")),
    ],
    (filtered_lrelu_linear, RuntimeError): [
        ({"signs": SIGNS.long()}, "signs to have dtype Int, but got Long"),
        ({"signs": SIGNS.to("meta")}, "signs to be on the device of x (cpu), but got meta"),
        (
            {"signs": SIGNS, "size": [17, 9]},
            "signs to have shape [batch, channels, words] = [2, 3, 130], but got [2, 3, 65]",
        ),
        (
            {"signs": SIGNS, "size": [17]},
            "sign_size, sign_offset and sign_phase to have 2 numbers each, but got 1, 2 and 2",
        ),
    ],
    (conv2d_resample, ValueError): [
        ({"up": 0}, "up to be a positive int, but got 0"),
        ({"down": 1.5}, "down to be a positive int, but got 1.5"),
    ],
    (conv2d_resample, RuntimeError): [
        ({"x": X[0]}, f"x {RANK_4} [N, C, H, W], {NOT_3}"),
        (
            {"w": KERNEL[0]},
            "w to have 4 dimensions [out_channels, C / groups, height, width], "
            "but got shape [3, 3, 3]",
        ),
        ({"w": KERNEL.half()}, "w to have the dtype of x (torch.float32), but got torch.float16"),
    ],
    (conv2d_resample, TypeError): [
        ({"f": [1.0]}, "f to be a tensor or None, but got list"),
    ],
    (grid_sample, RuntimeError): [
        ({"input": X[0]}, "input to have shape [N, C, H, W], but got [3, 8, 9]"),
        ({"grid": GRID[0]}, f"{GRID_SHAPE} [5, 6, 2]"),
        ({"grid": GRID[:1]}, f"{GRID_SHAPE} [1, 5, 6, 2]"),
        ({"grid": torch.zeros(2, 5, 6, 3)}, f"{GRID_SHAPE} [2, 5, 6, 3]"),
        (
            {"input": X.long()},
            "input to have dtype half, bfloat16, float or double, but got torch.int64",
        ),
        (
            {"grid": GRID.bool()},
            "grid to have dtype half, bfloat16, float or double, but got torch.bool",
        ),
    ],
}
RIGHT = {
    **{function: {"f": TAPS} for function in (filter2d, upsample2d, downsample2d)},
    bias_act: {"x": X},
    upfirdn2d: {"x": X, "f": TAPS},
    port_upfirdn2d: {"input": X, "kernel": KERNEL[0, 0]},
    filtered_lrelu: {"x": X, "b": B},
    conv2d_resample: {"x": X, "w": KERNEL},
    grid_sample: {"input": X, "grid": GRID},
}


# Functions that others are made of, which say it.
CALLED = {
    **dict.fromkeys((fused, fused_leaky_relu), "fused_bias_act"),
    **dict.fromkeys((filter2d, upsample2d, downsample2d), "upfirdn2d"),
}


@pytest.mark.parametrize(
    ("function", "error", "changed", "message"),
    [(*of, *row) for of, rows in REFUSED.items() for row in rows],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_refused(function, error, changed, message):
    name = CALLED.get(function, function.__name__)
    said = refusal(error, function, **{**RIGHT.get(function, {}), **changed})
    assert said == f"{name}(): expected {message}"


def test_the_port_of_upfirdn2d_counts_its_arguments():
    said = refusal(TypeError, port_upfirdn2d, X, KERNEL[0, 0], 1, 1, 1, 1, 0)
    assert said == "upfirdn2d(): expected 2 to 5 or 10 arguments, but got 7"
