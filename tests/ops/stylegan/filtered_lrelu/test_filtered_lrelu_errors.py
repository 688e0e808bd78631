"""filtered_lrelu: what bad input is told."""

from __future__ import annotations

import re

import pytest
import torch
from flr_testing import make_inputs
from op_testing import refusal

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu

X, B = make_inputs((2, 3, 8, 9), torch.float)
F = torch.ones(4)

BAD = {
    "x's dtype": ({"x": X.long()}, "x to have dtype Half, BFloat16, Float or Double, but got Long"),
    "x's layout": (
        {"x": torch.eye(3).to_sparse()},
        "x to be a dense tensor, but got layout Sparse",
    ),
    "x's rank": (
        {"x": X[0]},
        "x to have 4 dimensions [batch, channels, height, width], but got shape [3, 8, 9]",
    ),
    "b's dtype": ({"b": B.double()}, "b to have the dtype of x (Float), but got Double"),
    "b's device": ({"b": B.to("meta")}, "b to be on the device of x (cpu), but got meta"),
    "b's shape": ({"b": B[:2]}, "b to have shape [channels] = [3], but got [2]"),
    "fu's dtype": (
        {"fu": F.int()},
        "fu to have dtype Half, BFloat16, Float or Double, but got Int",
    ),
    "fd's device": ({"fd": F.to("meta")}, "fd to be on the device of x (cpu), but got meta"),
    "fu's rank": (
        {"fu": F.view(1, 2, 2)},
        "fu to have shape [taps] or [taps_y, taps_x], but got [1, 2, 2]",
    ),
    "no taps": ({"fd": F[:0]}, "fd to have at least one tap, but got shape [0]"),
    "up": ({"up": 0}, "up to be from 1 to 1024, but got 0"),
    "down": ({"down": -2}, "down to be from 1 to 1024, but got -2"),
    "clamp": ({"clamp": -0.5}, "clamp to be None or at least 0, but got -0.5"),
    "clamp nan": ({"clamp": float("nan")}, "clamp to be None or at least 0, but got nan"),
    "height": (
        {"fu": torch.ones(11, 1), "fd": F, "padding": [9, 9, 2, 3]},
        "the height of x, times up and with the padding, to be at least 14 for the filters, "
        "but got 13",
    ),
    "width": (
        {"padding": [-8, -1, 0, 0]},
        "the width of x, times up and with the padding, to be at least 1 for the filters, "
        "but got 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    changed, message = BAD[case]
    said = refusal(RuntimeError, filtered_lrelu, **{"x": X, "b": B, **changed})
    assert said == f"filtered_lrelu(): expected {message}"


@pytest.mark.parametrize("impl", ["cuda", "ref"])
def test_both_name_the_height_first(impl):
    with pytest.raises(RuntimeError, match=r"the height of x, .* at least 12 .*, but got 8"):
        filtered_lrelu(X, torch.ones(12), impl=impl)


@pytest.mark.parametrize("name", ["x", "fu", "fd", "b"])
@pytest.mark.parametrize(("value", "got"), [(0.5, "float"), ([1.0], "list"), (None, "None")])
def test_what_is_no_tensor(value, got, name):
    if value is None and name != "x":
        assert filtered_lrelu(**{"x": X, name: None}).shape == X.shape
        return
    wanted = "a tensor" if name == "x" else "a tensor or None"
    message = f"filtered_lrelu(): expected {name} to be {wanted}, but got {got}"
    assert refusal(TypeError, filtered_lrelu, **{"x": X, name: value}) == message


@pytest.mark.parametrize("name", ["up", "down", "gain", "slope", "clamp"])
def test_what_is_no_number(name):
    wanted = {"clamp": "a number or None", "gain": "a number", "slope": "a number"}
    message = f"filtered_lrelu(): expected {name} to be {wanted.get(name, 'an int')}, but got str"
    assert refusal(TypeError, filtered_lrelu, X, **{name: "2"}) == message


@pytest.mark.parametrize("padding", [[1, 2, 3], [], 1.5, None, [1, 2.5], "same"])
def test_bad_padding(padding):
    message = (
        "filtered_lrelu(): expected padding to be an int, [x, y] or [x0, x1, y0, y1], "
        f"but got {padding!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        filtered_lrelu(X, padding=padding)


def test_bad_implementation():
    with pytest.raises(ValueError, match=r"expected impl to be 'cuda' or 'ref', but got 'cpu'"):
        filtered_lrelu(X, impl="cpu")


SIGNS = torch.zeros(2, 3, 65, dtype=torch.int)
LINEAR = {
    "dtype": (SIGNS.long(), [8, 9], "signs to have dtype Int, but got Long"),
    "device": (SIGNS.to("meta"), [8, 9], "signs to be on the device of x (cpu), but got meta"),
    "shape": (
        SIGNS,
        [17, 9],
        "signs to have shape [batch, channels, words] = [2, 3, 130], but got [2, 3, 65]",
    ),
    "numbers": (
        SIGNS,
        [17],
        "sign_size, sign_offset and sign_phase to have 2 numbers each, but got 1, 2 and 2",
    ),
}


@pytest.mark.parametrize("case", LINEAR)
def test_bad_signs(case):
    signs, size, message = LINEAR[case]
    call = (1, 1, [0, 0, 0, 0], size, [0, 0], [0, 0], 1.0, 0.2, False, False)
    said = refusal(
        RuntimeError, torch.ops.lltm_jit.filtered_lrelu_linear, X, signs, None, None, *call
    )
    assert said == f"filtered_lrelu_linear(): expected {message}"
