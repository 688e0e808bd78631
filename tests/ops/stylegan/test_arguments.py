"""One rule for arguments that several StyleGAN operators have, whichever way they run."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from lltm_jit.ops.bias_act import bias_act
from lltm_jit.ops.conv2d_resample import conv2d_resample
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.stylegan2 import fused_bias_act
from lltm_jit.ops.upfirdn2d import upfirdn2d, upsample2d

X, F4 = torch.randn(1, 2, 8, 8), torch.ones(4, 4) / 16
WAITING = F4.clone().requires_grad_()


def by_operator(x: Tensor, f: Tensor | None = F4, **options: object) -> Tensor:
    """Through the dispatcher, as under torch.compile."""
    return upfirdn2d(x.as_subclass(type("Other", (Tensor,), {})), f, **options)


RESAMPLING = {
    "upfirdn2d": lambda f=F4, **o: upfirdn2d(X, f, **o),
    "upfirdn2d reference": lambda f=F4, **o: upfirdn2d(X, f, impl="ref", **o),
    "upfirdn2d operator": lambda f=F4, **o: by_operator(X, f, **o),
    "upsample2d": lambda f=F4, **o: upsample2d(X, f, **o),
    "filtered_lrelu": lambda f=F4, **o: filtered_lrelu(X, f, f, **o),
    "filtered_lrelu reference": lambda f=F4, **o: filtered_lrelu(X, f, f, impl="ref", **o),
    "conv2d_resample": lambda f=F4, **o: conv2d_resample(X, torch.ones(3, 2, 3, 3), f, **o),
}
REFUSALS = (RuntimeError, TypeError, ValueError)
CROPPED = -9  # nothing is left of the image
# Values that are taken, and others that are not; the same by all functions that have the argument.
ARGUMENTS = {
    "up": ([2, np.int64(2), True, [2], [2, 1]], [[1, 2, 3], np.array([2, 2]), 0, 2.0, None]),
    "down": ([np.int64(2)], [-1, [1, 0]]),
    "padding": (
        [np.int64(4), True, [4], [np.int64(4), 4], [torch.tensor(4), 4], [True, 4, 4, 4]],
        [[4, 4, 4], 4.0, CROPPED],
    ),
    "flip_filter": ([True], [1, np.True_, None]),
    "gain": ([np.float32(2), torch.tensor(2.0)], [1j, None]),
    "f": (
        [None, F4.half(), F4.double()],
        [F4.int(), F4[:0], F4[None], F4.to("meta"), WAITING, [1.0]],
    ),
}


def calls_with(argument: str, value: object) -> Iterator[Callable[[], Tensor]]:
    """Of the functions that have the argument."""
    absent = {"conv2d_resample": ["gain"], "upsample2d": ["down"]}
    for name, function in RESAMPLING.items():
        one_number = name.startswith(("filtered_lrelu", "conv2d")) and argument in ("up", "down")
        if argument not in absent.get(name, []) and not (one_number and isinstance(value, list)):
            yield partial(function, **{"padding": 4, argument: value})


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_one_rule_for_arguments(argument):
    taken, refused = ARGUMENTS[argument]
    for value in taken:
        for call in calls_with(argument, value):
            call()
    for value in refused:
        named = "width|height" if value is CROPPED else rf"\b{argument}|\bf[ud]\b"
        for call in calls_with(argument, value):
            with pytest.raises(REFUSALS, match=rf"\(\): expected .*({named})"):
                call()


def test_a_filter_that_waits_for_a_gradient_is_taken_where_there_is_none():
    with torch.no_grad():
        for function in RESAMPLING.values():
            function(f=WAITING, padding=4)


BIASED = {
    "bias_act": lambda x=X, b=None, **o: bias_act(x, b, **o),
    "bias_act reference": lambda x=X, b=None, **o: bias_act(x, b, impl="ref", **o),
    "fused_bias_act": lambda x=X, b=None: fused_bias_act(x, b, None, 3, 0, 0.2, 1.0),
    "fused reference": lambda x=X, b=None: fused_bias_act(x, b, None, 3, 0, 0.2, 1.0, impl="ref"),
    "filtered_lrelu": lambda x=X, b=None: filtered_lrelu(x, b=b),
    "filtered_lrelu reference": lambda x=X, b=None: filtered_lrelu(x, b=b, impl="ref"),
}
BIASES = [
    ({"b": torch.ones(2)}, True),
    ({"b": torch.ones(1)}, False),
    ({"b": torch.ones(1, 2)}, False),
    ({"b": torch.ones(2).half()}, False),
    ({"b": torch.ones(2, device="meta")}, False),
    ({"b": 1.0}, False),
    ({"x": X.int()}, False),
    ({"b": torch.ones(8), "dim": np.int64(-1)}, True),
    ({"b": torch.ones(8), "dim": -5}, False),
    ({"b": torch.ones(8), "dim": 2.0}, False),
    ({"clamp": -1}, False),
    ({"clamp": float("nan")}, False),
    ({"clamp": "1"}, False),
    ({"gain": None}, True),
    ({"gain": "1"}, False),
    ({"gain": 1j}, False),
]


@pytest.mark.parametrize(("options", "taken"), BIASES)
def test_one_rule_for_biases(options, taken):
    for name, function in BIASED.items():
        if not name.startswith("bias_act") and {"dim", "clamp", "gain"} & options.keys():
            continue
        if taken:
            function(**options)
        else:
            with pytest.raises((RuntimeError, TypeError), match=r"\(\): expected "):
                function(**options)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("name", BIASED)
def test_autocast_casts_the_bias_to_x(name, dtype, device):
    """A parameter keeps its dtype where autocast made another one of x, whose dtype stays."""
    x, b = X.to(device, dtype), torch.randn(2, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = BIASED[name](x, b)
    assert y.dtype == dtype
    torch.testing.assert_close(y, BIASED[name](x, b.to(dtype)))
    assert torch.autograd.grad(y.sum(), b)[0].dtype == torch.float
