"""The LLTM cell and layer as modules."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from op_testing import bits, refusal

import lltm_jit
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("bias_shape", [(21,), (1, 21)])
def test_state_dict_of_the_tutorial_module_loads(bias_shape):
    weights, bias = torch.randn(21, 12), torch.randn(bias_shape)
    cell = lltm_jit.LLTMCell(5, 7)
    cell.load_state_dict({"weights": weights, "bias": bias})
    torch.testing.assert_close(cell.weights.detach(), weights)
    torch.testing.assert_close(cell.bias.detach(), bias.view(21))
    nested = torch.nn.ModuleDict({"rnn": lltm_jit.LLTMCell(5, 7)})
    nested.load_state_dict({"rnn.weights": weights, "rnn.bias": bias})
    torch.testing.assert_close(nested["rnn"].bias.detach(), bias.view(21))


class TutorialLLTM(torch.nn.Module):
    """The module of the tutorial, as its users have it."""

    def __init__(self, input_features, state_size, bias_shape):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.rand(3 * state_size, input_features + state_size))
        self.bias = torch.nn.Parameter(torch.rand(bias_shape))

    def forward(self, input, state):
        return lltm_cell_reference(input, self.weights, self.bias, *state)


@pytest.mark.parametrize("bias_shape", [(21,), (1, 21)])
def test_state_dict_goes_to_the_tutorial_module_and_back(bias_shape):
    ours, again = lltm_jit.LLTMCell(5, 7), lltm_jit.LLTMCell(5, 7)
    theirs = TutorialLLTM(5, 7, bias_shape)
    state = ours.state_dict()
    if len(bias_shape) == 2:
        state = {**state, "bias": ours.bias[None]}
    theirs.load_state_dict(state)
    again.load_state_dict(theirs.state_dict())
    input, h, c = torch.randn(3, 5), torch.randn(3, 7), torch.randn(3, 7)
    torch.testing.assert_close(ours(input, (h, c)), theirs(input, (h, c)))
    assert bits(again(input, (h, c))) == bits(ours(input, (h, c)))


def test_cell_module():
    torch.manual_seed(0)
    cell = lltm_jit.LLTMCell(5, 16)
    assert [(name, tuple(p.shape)) for name, p in cell.named_parameters()] == [
        ("weights", (48, 21)),
        ("bias", (48,)),
    ]
    assert all(p.abs().max() <= 0.25 for p in cell.parameters())
    assert cell.weights.abs().max() > 0.2
    input = torch.randn(3, 5)
    zeros = torch.zeros(3, 16)
    torch.testing.assert_close(cell(input), cell(input, (zeros, zeros)))
    assert lltm_jit.LLTMCell(5, 7, bias=False).bias is None
    torch.testing.assert_close(copy.deepcopy(cell)(input), cell(input))
    torch.testing.assert_close(pickle.loads(pickle.dumps(cell))(input), cell(input))
    assert repr(cell) == "LLTMCell(5, 16, bias=True)"
    with pytest.raises(ValueError, match=r"expected impl to be one of .* but got 'fast'"):
        lltm_jit.LLTMCell(5, 7, impl="fast")


BATCHED, UNBATCHED = "3 dimensions [layers, batch, hidden]", "2 dimensions [layers, hidden]"
BAD_STATES = {
    "h_0 without the layer": ((4, 2, 5), (2, 7), (1, 2, 7), f"h_0 to have {BATCHED}"),
    "c_0 without the layer": ((4, 2, 5), (1, 2, 7), (2, 7), f"c_0 to have {BATCHED}"),
    "one sequence": ((4, 1, 5), (1, 7), (1, 7), f"h_0 to have {BATCHED}"),
    "a batch of states": ((4, 5), (1, 1, 7), (1, 1, 7), f"h_0 to have {UNBATCHED}"),
}


@pytest.mark.parametrize("case", BAD_STATES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_layer_refuses_a_state_of_another_rank(batch_first, case):
    """As torch.nn.LSTM does."""
    input_shape, h_shape, c_shape, wanted = BAD_STATES[case]
    if batch_first:
        input_shape = (*reversed(input_shape[:-1]), input_shape[-1])
    input, state = torch.zeros(input_shape), (torch.zeros(h_shape), torch.zeros(c_shape))
    with pytest.raises(RuntimeError, match=r"hx and cx should also be"):
        torch.nn.LSTM(5, 7, batch_first=batch_first)(input, state)
    with pytest.raises(RuntimeError, match=r"^LLTM\(\): ") as raised:
        lltm_jit.LLTM(5, 7, batch_first=batch_first)(input, state)
    got = list(h_shape if wanted.startswith("h_0") else c_shape)
    assert str(raised.value) == f"LLTM(): expected {wanted}, but got shape {got}"


STATE = torch.zeros(1, 2, 7)
NO_TENSORS = {
    "no c_0": (
        lltm_jit.LLTM,
        (torch.zeros(4, 2, 5), (STATE, 0.0)),
        "LLTM(): expected c_0",
        "float",
    ),
    "no input": (lltm_jit.LLTMCell, (None,), "LLTMCell(): expected input", "None"),
    "a list": (lltm_jit.LLTMCell, ([[1.0]],), "LLTMCell(): expected input", "list"),
}


@pytest.mark.parametrize("module", [lltm_jit.LLTMCell, lltm_jit.LSTM])
@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((5, 7.0), TypeError, "hidden_size to be an int, but got float"),
        (("5", 7), TypeError, "input_size to be an int, but got str"),
        ((5, -7), ValueError, "hidden_size to be 0 or more, but got -7"),
    ],
)
def test_modules_refuse_sizes(module, sizes, error, message):
    assert refusal(error, module, *sizes) == f"{module.__name__}(): expected {message}"


@pytest.mark.parametrize("state", [None, (torch.zeros(2, 7), torch.zeros(2, 7))])
def test_the_cell_names_wrong_features(state):
    said = refusal(RuntimeError, lltm_jit.LLTMCell(5, 7), torch.zeros(2, 6), state)
    assert said == "LLTMCell(): expected input to have 5 features, but got 6"


@pytest.mark.parametrize("case", NO_TENSORS)
def test_modules_refuse_what_is_no_tensor(case):
    module, args, begin, got = NO_TENSORS[case]
    assert refusal(TypeError, module(5, 7), *args) == f"{begin} to be a tensor, but got {got}"
