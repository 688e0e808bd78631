"""What recurrent layers refuse, and in which words."""

from __future__ import annotations

import math

import pytest
import torch
from op_testing import needs_gpu
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import lltm_jit

X = torch.zeros(4, 3, 5)
WRONG = {
    "a rank": ((torch.zeros(5),), ValueError, r"2 or 3 dimensions, but got shape \[5\]"),
    "features": ((torch.zeros(4, 3, 6),), RuntimeError, "5 features, but got 6"),
    "a dtype": (
        (X.double(),),
        ValueError,
        r"the dtype of the parameters \(torch.float32\), but got torch.float64",
    ),
    "whole numbers": ((X.long(),), ValueError, r"torch.float32\), but got torch.int64"),
    "a device": (
        (X.to("meta"),),
        RuntimeError,
        r"the device of the parameters \(cpu\), but got meta",
    ),
    "no steps": ((torch.zeros(0, 3, 5),), RuntimeError, "at least one step, but got none"),
    "no tensor": ((None,), TypeError, "expected input to be a tensor, but got None"),
    "one state": ((X, torch.zeros(1, 3, 7)), TypeError, "a tuple of 2 tensors, but got Tensor"),
    "a state's rank": (
        (X, (torch.zeros(3, 7), torch.zeros(1, 3, 7))),
        RuntimeError,
        r"h_0 to have 3 dimensions \[layers, batch, hidden\], but got shape \[3, 7\]",
    ),
    "another state's rank": (
        (X, (torch.zeros(1, 3, 7), torch.zeros(3, 7))),
        RuntimeError,
        r"c_0 to have 3 dimensions \[layers, batch, hidden\], but got shape \[3, 7\]",
    ),
    "a batch of states": (
        (X[:, 0], (torch.zeros(1, 3, 7), torch.zeros(1, 7))),
        RuntimeError,
        r"h_0 to have 2 dimensions \[layers, hidden\], but got shape \[1, 3, 7\]",
    ),
    "a state's size": (
        (X, (torch.zeros(1, 3, 7), torch.zeros(1, 2, 7))),
        RuntimeError,
        r"c_0 to have shape .* = \[1, 3, 7\], but got \[1, 2, 7\]",
    ),
    "no state": ((X, (None, None)), TypeError, "expected h_0 to be a tensor, but got None"),
    "a number": (
        (X, (torch.zeros(1, 3, 7), 0.0)),
        TypeError,
        "expected c_0 to be a tensor, but got float",
    ),
}


@pytest.mark.parametrize("way", WRONG)
def test_errors(way):
    args, error, message = WRONG[way]
    with pytest.raises(error, match=r"LSTM\(\): expected .*" + message.removeprefix("expected ")):
        lltm_jit.LSTM(5, 7)(*args)


WRONG_NUMBERS = [
    ({"proj_size": 7}, "proj_size to be less than hidden_size = 7, but got 7"),
    ({"num_layers": 0}, "num_layers to be at least 1, but got 0"),
    ({"num_layers": True}, "num_layers to be at least 1, but got True"),
    ({"dropout": 1.5}, "dropout to be from 0 to 1, but got 1.5"),
    ({"dropout": True}, "dropout to be from 0 to 1, but got True"),
    ({"dropout": math.nan}, "dropout to be from 0 to 1, but got nan"),
    ({"checkpoint": -1}, "checkpoint to be 0 or more, but got -1"),
    ({"checkpoint": 2**63}, r"checkpoint to be less than 2\*\*63, but got 9223372036854775808"),
]
WRONG_TYPES = [
    ({"dropout": "0.5"}, "dropout to be a number, but got str"),
    ({"num_layers": "2"}, "num_layers to be an int, but got str"),
    ({"num_layers": 2.0}, "num_layers to be an int, but got float"),
    ({"checkpoint": "2"}, "checkpoint to be an int, but got str"),
    ({"checkpoint": None}, "checkpoint to be an int, but got None"),
]


@pytest.mark.parametrize(("named", "message"), WRONG_NUMBERS + WRONG_TYPES)
def test_errors_of_the_constructor(named, message):
    error = TypeError if (named, message) in WRONG_TYPES else ValueError
    with pytest.raises(error, match=r"^LSTM\(\): expected " + message):
        lltm_jit.LSTM(5, 7, **named)


@pytest.mark.parametrize("dropout", [0.5, 1])
def test_dropout_of_one_layer_does_nothing_and_says_so(dropout):
    with pytest.warns(UserWarning, match=rf"^GRU\(\): .* so {dropout} does nothing with .*=1"):
        lltm_jit.GRU(5, 7, dropout=dropout)


H, C, PACKED = torch.zeros(1, 3, 7), torch.zeros(1, 3, 7), torch.tensor([3, 3, 3, 3])
FOREIGN = {
    "h_0's dtype": ((X, (H.double(), C)), r"h_0 .* dtype of the parameters \(torch.float32\)"),
    "c_0's dtype": ((X, (H, C.half())), r"c_0 .* parameters .*, but got torch.float16"),
    "h_0's device": ((X, (H.to("meta"), C)), r"h_0 .* device of the parameters \(cpu\), but got m"),
    "c_0's device": ((X, (H, C.to("meta"))), r"c_0 .* device of the parameters \(cpu\), but got m"),
    "c_0's dtype, in parts": (
        (pack_padded_sequence(torch.zeros(6, 3, 5), [6, 4, 1]), (H, C.half())),
        r"c_0 .* parameters .*, but got torch.float16",
    ),
    "packed": ((PackedSequence(torch.zeros(12, 5).double(), PACKED),), "input .* torch.float64"),
    "packed sizes": ((PackedSequence(torch.zeros(12, 6), PACKED),), "5 features, but got 6"),
    "packed rank": ((PackedSequence(torch.zeros(12), PACKED),), "2 dimensions, but got .*12"),
}


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("way", FOREIGN)
def test_errors_name_the_layer_and_its_argument(way, normed):
    """As their user knows them, and not what a parametrisation calls its class."""
    args, message = FOREIGN[way]
    layer = lltm_jit.LSTM(5, 7)
    layer = weight_norm(layer, "weight_hh_l0") if normed else layer
    with pytest.raises((RuntimeError, ValueError), match=r"^LSTM\(\): expected .*" + message):
        layer(*args)


def test_errors_name_a_parameter_unlike_the_others():
    layer = lltm_jit.GRU(5, 7, 2)
    layer.weight_hh_l1 = nn.Parameter(layer.weight_hh_l1.double())
    expected = (
        r"^GRU\(\): expected weight_hh_l1 to have the dtype of weight_ih_l0 \(torch.float32\)"
    )
    with pytest.raises(RuntimeError, match=expected):
        layer(X)
    with pytest.raises(
        RuntimeError, match=r"^GRU\(\): expected the parameters to be half, .*complex"
    ):
        lltm_jit.GRU(5, 7, dtype=torch.complex64)(X.to(torch.complex64))


REPLACED = {
    "a shape": (
        lambda w: w.detach()[:3],
        RuntimeError,
        r"have shape \[28, .\], but got \[3",
    ),
    "sparse": (lambda w: w.detach().to_sparse(), RuntimeError, "be a dense tensor, but got layout"),
    "none": (lambda w: None, TypeError, "be a tensor, but got None"),
}


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
@pytest.mark.parametrize("way", REPLACED)
def test_errors_name_a_parameter_that_was_replaced(way, name):
    replace, error, message = REPLACED[way]
    layer = lltm_jit.LSTM(5, 7)
    weight = replace(getattr(layer, name))
    setattr(layer, name, None if weight is None else nn.Parameter(weight))
    with pytest.raises(error, match=rf"^LSTM\(\): expected {name} to {message}"):
        layer(X)


def test_sparse_inputs_and_states_are_refused():
    layer = lltm_jit.GRU(5, 7)
    for name, args in {"input": (X.to_sparse(),), "h_0": (X, H.to_sparse())}.items():
        message = rf"^GRU\(\): expected {name} to be a dense tensor, but got layout torch.sparse"
        with pytest.raises(RuntimeError, match=message):
            layer(*args)


NAMED = ["LLTM", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"]


@pytest.mark.parametrize("kind", NAMED)
def test_pythons_messages_name_what_was_called(kind):
    layer = getattr(lltm_jit, kind)
    for wrong in (lambda: layer(5), lambda: layer(5, 7, nonsense=1)):
        with pytest.raises(TypeError, match=rf"^{kind}\.__init__\(\) "):
            wrong()
    for wrong in (lambda: layer(5, 7)(), lambda: layer(5, 7)(X, nonsense=1)):
        with pytest.raises(TypeError, match=rf"^{kind}\.forward\(\) "):
            wrong()


@pytest.mark.parametrize("gradients", [False, True])
def test_layers_of_different_sizes_are_refused(gradients):
    """Without gradients the kernels of all layers write into one tensor of last states."""
    layer, other = lltm_jit.LSTM(3, 8, 2), lltm_jit.LSTM(8, 4)
    for name, parameter in other.named_parameters():
        setattr(layer, name.replace("l0", "l1"), parameter)
    message = r"weight_ih_l1 to have shape \[32, 8\], but got \[16, 8\]"
    with torch.set_grad_enabled(gradients), pytest.raises(RuntimeError, match=message):
        layer(torch.randn(5, 2, 3))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (torch.zeros(32).double(), r"dtype of weight_ih_l0 \(torch.float32\)"),
        (torch.zeros(8), r"bias_ih_l0 to have shape \[32\], but got \[8\]"),
    ],
    ids=["dtype", "shape"],
)
def test_a_wrong_bias_of_the_input_is_refused(device, bias, message):
    """Also where the kernel of the steps adds it."""
    layer = lltm_jit.LSTM(3, 8, device=device)
    layer.bias_ih_l0 = nn.Parameter(bias.to(device))
    with torch.no_grad(), pytest.raises(RuntimeError, match=message):
        layer(torch.randn(5, 2, 3, device=device))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize(
    "weight", [torch.zeros(32, 3).half(), torch.zeros(32, 11)], ids=["dtype", "shape"]
)
def test_a_wrong_weight_of_the_other_direction_is_refused(device, weight):
    """Also where one kernel copies both directions' weights."""
    layer = lltm_jit.LSTM(3, 8, bidirectional=True, device=device)
    layer.weight_ih_l0_reverse = nn.Parameter(weight.to(device))
    with torch.no_grad(), pytest.raises(RuntimeError, match="weight_ih_l0_reverse"):
        layer(torch.randn(5, 2, 3, device=device))
