"""What recurrent layers refuse, and in which words."""

import math

import pytest
import torch
from op_testing import refusal
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import lltm_jit

X, H = torch.zeros(4, 3, 5), torch.zeros(1, 3, 7)
RANK = r"to have 3 dimensions \[layers, batch, hidden\], but got shape"
SINGLE = r"to have 2 dimensions \[layers, hidden\], but got shape"
DTYPE = r"the dtype of the parameters \(torch.float32\), but got torch"
DEVICE = r"the device of the parameters \(cpu\), but got meta"


def packed(*shape: int) -> PackedSequence:
    return PackedSequence(torch.zeros(shape), torch.tensor([3, 3, 3, 3]))


# Arguments of a GRU, for which torch's has an error of the same type; its LSTM does not check all.
LIKE_TORCH = {
    "no steps": ((X[:0],), RuntimeError, "at least one step, but got none"),
    "rank 1": ((X[0, 0],), ValueError, r"input to have 2 or 3 dimensions, but got shape \[5\]"),
    "rank 4": ((X[None],), ValueError, r"input to have 2 or 3 .*, but got shape \[1, 4, 3, 5\]"),
    "features": ((torch.zeros(4, 3, 6),), RuntimeError, "input to have 5 features, but got 6"),
    "a dtype": ((X.double(),), ValueError, f"input to have {DTYPE}.float64"),
    "whole numbers": ((X.long(),), ValueError, f"input to have {DTYPE}.int64"),
    "a device": ((X.to("meta"),), RuntimeError, f"input to have {DEVICE}"),
    "packed dtype": ((packed(12, 5).double(),), ValueError, f"input to have {DTYPE}.float64"),
    "packed features": ((packed(12, 6),), RuntimeError, "input to have 5 features, but got 6"),
    "packed rank": (
        (packed(12),),
        RuntimeError,
        r"the data of .* 2 dimensions, but got shape \[12\]",
    ),
    "h_0's rank": ((X, H[0]), RuntimeError, rf"h_0 {RANK} \[3, 7\]"),
    "h_0's batch": ((X[:, 0], H), RuntimeError, rf"h_0 {SINGLE} \[1, 3, 7\]"),
    "h_0's size": ((X, H[:, :2]), RuntimeError, r"h_0 .* = \[1, 3, 7\], but got \[1, 2, 7\]"),
    "h_0's dtype": ((X, H.double()), RuntimeError, f"h_0 to have {DTYPE}.float64"),
    "h_0's device": ((X, H.to("meta")), RuntimeError, f"h_0 to have {DEVICE}"),
    "sparse": (
        (X.to_sparse(),),
        RuntimeError,
        "input to be a dense tensor, but got layout",
    ),
    "h_0 sparse": (
        (X, H.to_sparse()),
        RuntimeError,
        "h_0 to be a dense tensor, but got layout",
    ),
}
# Arguments of an LSTM.
OURS = {
    "no tensor": ((None,), TypeError, "input to be a tensor, but got None"),
    "one state": ((X, H), TypeError, "hx to be a tuple of 2 tensors, but got Tensor"),
    "no state": ((X, (None, None)), TypeError, "h_0 to be a tensor, but got None"),
    "a number": ((X, (H, 0.0)), TypeError, "c_0 to be a tensor, but got float"),
    "c_0's rank": ((X, (H, H[0])), RuntimeError, rf"c_0 {RANK} \[3, 7\]"),
    "c_0's size": ((X, (H, H[:, :2])), RuntimeError, r"c_0 .* \[1, 3, 7\], but got \[1, 2, 7\]"),
    "c_0's dtype": ((X, (H, H.half())), RuntimeError, f"c_0 to have {DTYPE}.float16"),
    "c_0's device": ((X, (H, H.to("meta"))), RuntimeError, f"c_0 to have {DEVICE}"),
    "c_0's dtype, in parts": (
        (pack_padded_sequence(torch.zeros(6, 3, 5), [6, 4, 1]), (H, H.half())),
        RuntimeError,
        f"c_0 to have {DTYPE}.float16",
    ),
}


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("way", [*LIKE_TORCH, *OURS])
def test_errors_of_calls(way, normed):
    """They name the layer as its user does, not as a parametrisation calls its class."""
    args, error, message = (LIKE_TORCH | OURS)[way]
    layer = lltm_jit.GRU(5, 7) if way in LIKE_TORCH else lltm_jit.LSTM(5, 7)
    name = type(layer).__name__
    layer = weight_norm(layer, "weight_hh_l0") if normed else layer
    with pytest.raises(error, match=rf"^{name}\(\): expected {message}"):
        layer(*args)
    if way in LIKE_TORCH:
        with pytest.raises(error):
            nn.GRU(5, 7)(*args)


def test_cells_in_float_are_for_16_bit_types():
    message = "c_0 to have the dtype of the parameters .torch.float64., but got torch.float32"
    with pytest.raises(RuntimeError, match=rf"^LSTM\(\): expected {message}"):
        lltm_jit.LSTM(5, 7).double()(X.double(), (H.double(), H))


# Arguments of the constructor, for which torch's has an error of the same type.
WRONG_SIZES = [
    ({"hidden_size": 2.0}, "hidden_size to be an int, but got float"),
    ({"input_size": "2"}, "input_size to be an int, but got str"),
    ({"input_size": torch.tensor(5)}, "input_size to be an int, but got Tensor"),
    ({"input_size": -1}, "input_size to be 0 or more, but got -1"),
    ({"input_size": 0}, "input_size to be at least 1, but got 0"),
    ({"hidden_size": 0}, "hidden_size to be at least 1, but got 0"),
    ({"num_layers": "2"}, "num_layers to be an int, but got str"),
    ({"num_layers": 2.0}, "num_layers to be an int, but got float"),
    ({"num_layers": 0}, "num_layers to be at least 1, but got 0"),
    ({"dropout": None}, "dropout to be a number, but got None"),
    ({"dropout": 1.5}, "dropout to be from 0 to 1, but got 1.5"),
    ({"dropout": True}, "dropout to be from 0 to 1, but got True"),
    ({"dropout": math.nan}, "dropout to be from 0 to 1, but got nan"),
    ({"bias": 1}, "bias to be a bool, but got int"),
    ({"bias": torch.float}, "bias to be a bool, but got dtype"),
    ({"batch_first": None}, "batch_first to be a bool, but got None"),
    ({"proj_size": 7}, "proj_size to be less than hidden_size = 7, but got 7"),
    ({"proj_size": -1}, "proj_size to be 0 or more, but got -1"),
]
# Which torch's does not refuse, or does not have.
MORE_WRONG = [
    ({"num_layers": True}, ValueError, "num_layers to be at least 1, but got True"),
    ({"dropout": "0.5"}, TypeError, "dropout to be a number, but got str"),
    ({"checkpoint": -1}, ValueError, "checkpoint to be 0 or more, but got -1"),
    ({"checkpoint": 2**63}, ValueError, rf"checkpoint to be less than 2\*\*63, but got {2**63}"),
    ({"checkpoint": "2"}, TypeError, "checkpoint to be an int, but got str"),
    ({"checkpoint": None}, TypeError, "checkpoint to be an int, but got None"),
    ({"num_heads": 0}, ValueError, "num_heads to divide hidden_size = 7, but got 0"),
    ({"num_heads": 5}, ValueError, "num_heads to divide hidden_size = 7, but got 5"),
    ({"num_heads": 2.5}, TypeError, "num_heads to be an int, but got float"),
    ({"num_heads": True}, ValueError, "num_heads to divide hidden_size = 7, but got True"),
    ({"proj_size": 3, "num_heads": 7}, ValueError, "num_heads to be 1 with a proj_size, but got 7"),
]


@pytest.mark.parametrize(("named", "message"), WRONG_SIZES, ids=str)
def test_errors_of_the_constructor_are_of_torchs_types(named, message):
    sizes = {"input_size": 5, "hidden_size": 7} | named
    with pytest.raises((TypeError, ValueError)) as theirs:
        nn.LSTM(**sizes)
    said = refusal(theirs.type, lltm_jit.LSTM, **sizes)
    assert said == f"LSTM(): expected {message}"


@pytest.mark.parametrize(("named", "error", "message"), MORE_WRONG, ids=str)
def test_more_errors_of_the_constructor(named, error, message):
    with pytest.raises(error, match=rf"^LSTM\(\): expected {message}$"):
        lltm_jit.LSTM(5, 7, **named)


@pytest.mark.parametrize("dropout", [0.5, 1])
def test_dropout_of_one_layer_does_nothing_and_says_so(dropout):
    with pytest.warns(UserWarning, match=rf"^GRU\(\): .* so {dropout} does nothing with .*=1"):
        lltm_jit.GRU(5, 7, dropout=dropout)


def test_errors_name_a_parameter_unlike_the_others():
    layer = lltm_jit.GRU(5, 7, 2)
    layer.weight_hh_l1 = nn.Parameter(layer.weight_hh_l1.double())
    expected = "GRU(): expected weight_hh_l1 to have the dtype of weight_ih_l0 (torch.float32)"
    assert refusal(RuntimeError, layer, X).startswith(expected)
    layer = lltm_jit.GRU(5, 7, dtype=torch.complex64)
    said = refusal(RuntimeError, layer, X.to(torch.complex64))
    assert said.startswith("GRU(): expected the parameters to be half, ")
    assert "complex" in said


REPLACED = {
    "a shape": (lambda w: w.detach()[:3], RuntimeError, r"have shape \[28, .\], but got \[3"),
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


# Also where the kernel of the steps adds the bias, and where one copies both directions' weights.
@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("bias_ih_l0", torch.zeros(32).half(), r"dtype of weight_ih_l0 \(torch.float32\)"),
        ("bias_ih_l0", torch.zeros(1), r"bias_ih_l0 to have shape \[32\], but got \[1\]"),
        ("weight_ih_l0_reverse", torch.zeros(32, 3).half(), "weight_ih_l0_reverse"),
        ("weight_ih_l0_reverse", torch.zeros(32, 11), "weight_ih_l0_reverse"),
    ],
    ids=["dtype", "shape", "other dtype", "other shape"],
)
def test_a_wrong_parameter_is_refused_without_gradients(device, name, wrong, message):
    layer = lltm_jit.LSTM(3, 8, bidirectional="reverse" in name, device=device)
    setattr(layer, name, nn.Parameter(wrong.to(device)))
    with torch.no_grad(), pytest.raises(RuntimeError, match=message):
        layer(torch.randn(5, 2, 3, device=device))
