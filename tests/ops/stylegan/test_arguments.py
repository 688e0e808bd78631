"""One rule for arguments that several StyleGAN operators have, whichever way they run."""

import re

import numpy as np
import pytest
import torch
from op_testing import DEVICES
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
# Arguments, and whether they are taken; the same by all functions that have them.
ARGUMENTS = [
    ({"up": 2}, True),
    ({"up": np.int64(2)}, True),
    ({"up": True}, True),
    ({"up": [2]}, True),
    ({"up": [2, 1]}, True),
    ({"up": [1, 2, 3]}, False),
    ({"up": np.array([2, 2])}, False),
    ({"up": 0}, False),
    ({"up": 2.0}, False),
    ({"up": None}, False),
    ({"down": np.int64(2)}, True),
    ({"down": -1}, False),
    ({"down": [1, 0]}, False),
    ({"padding": np.int64(4)}, True),
    ({"padding": True}, True),
    ({"padding": [4]}, True),
    ({"padding": [np.int64(4), 4]}, True),
    ({"padding": [torch.tensor(4), 4]}, True),
    ({"padding": [True, 4, 4, 4]}, True),
    ({"padding": [4, 4, 4]}, False),
    ({"padding": 4.0}, False),
    ({"padding": -9}, False),
    ({"flip_filter": True}, True),
    ({"flip_filter": 1}, False),
    ({"flip_filter": np.True_}, False),
    ({"flip_filter": None}, False),
    ({"gain": np.float32(2)}, True),
    ({"gain": torch.tensor(2.0)}, True),
    ({"gain": 1j}, False),
    ({"gain": None}, False),
    ({"f": None}, True),
    ({"f": F4.half()}, True),
    ({"f": F4.double()}, True),
    ({"f": F4.int()}, False),
    ({"f": F4[:0]}, False),
    ({"f": F4[None]}, False),
    ({"f": F4.to("meta")}, False),
    ({"f": WAITING}, False),
    ({"f": [1.0]}, False),
]


@pytest.mark.parametrize(("options", "taken"), ARGUMENTS)
def test_one_rule_for_arguments(options, taken):
    (argument,) = options
    for name, function in RESAMPLING.items():
        scalar = name.startswith(("filtered_lrelu", "conv2d")) and argument in ("up", "down")
        absent = {"conv2d_resample": ["gain"], "upsample2d": ["down"]}.get(name, [])
        if argument in absent or (scalar and isinstance(options[argument], list)):
            continue
        padding = {"padding": 4} if argument != "padding" else {}
        if taken:
            function(**padding, **options)
        else:
            with pytest.raises((RuntimeError, TypeError, ValueError)) as raised:
                function(**padding, **options)
            named = "width|height" if options == {"padding": -9} else rf"\b{argument}|\bf[ud]\b"
            assert re.search(rf"\(\): expected .*({named})", str(raised.value)), name


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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("name", ["bias_act", "fused_bias_act", "filtered_lrelu"])
def test_autocast_casts_the_bias_to_x(name, dtype, device):
    """A parameter keeps its dtype where autocast made another one of x, whose dtype stays."""
    x, b = X.to(device, dtype), torch.randn(2, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = BIASED[name](x, b)
    assert y.dtype == dtype
    torch.testing.assert_close(y, BIASED[name](x, b.to(dtype)))
    assert torch.autograd.grad(y.sum(), b)[0].dtype == torch.float
