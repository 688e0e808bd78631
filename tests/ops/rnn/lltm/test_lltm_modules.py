"""The LLTM cell and layer as modules."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from op_testing import bits, refusal

import lltm_jit
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


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
    nested = torch.nn.ModuleDict({"rnn": lltm_jit.LLTMCell(5, 7)})
    nested.load_state_dict({f"rnn.{name}": value for name, value in theirs.state_dict().items()})
    assert bits(nested["rnn"](input, (h, c))) == bits(ours(input, (h, c)))


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


@pytest.mark.parametrize(("input", "got"), [(None, "None"), ([[1.0]], "list")])
def test_the_cell_refuses_what_is_no_tensor(input, got):
    said = refusal(TypeError, lltm_jit.LLTMCell(5, 7), input)
    assert said == f"LLTMCell(): expected input to be a tensor, but got {got}"
