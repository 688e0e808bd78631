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
    ours, theirs = lltm_jit.LLTMCell(5, 7), TutorialLLTM(5, 7, bias_shape)
    theirs.load_state_dict({"weights": ours.weights, "bias": ours.bias.view(bias_shape)})
    input, state = torch.randn(3, 5), (torch.randn(3, 7), torch.randn(3, 7))
    torch.testing.assert_close(ours(input, state), theirs(input, state))
    nested = torch.nn.ModuleDict({"rnn": lltm_jit.LLTMCell(5, 7)})
    nested.load_state_dict({f"rnn.{name}": value for name, value in theirs.state_dict().items()})
    assert bits(nested["rnn"](input, state)) == bits(ours(input, state))


def test_cell_module():
    cell = lltm_jit.LLTMCell(5, 16)
    shapes = [(name, tuple(p.shape)) for name, p in cell.named_parameters()]
    assert shapes == [("weights", (48, 21)), ("bias", (48,))]
    assert all(p.abs().max() <= 0.25 for p in cell.parameters())
    assert cell.weights.abs().max() > 0.2
    assert lltm_jit.LLTMCell(5, 7, bias=False).bias is None
    assert repr(cell) == "LLTMCell(5, 16, bias=True)"
    input, zeros = torch.randn(3, 5), torch.zeros(3, 16)
    expected = cell(input, (zeros, zeros))
    for same in (cell, copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        torch.testing.assert_close(same(input), expected)
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


def test_the_cell_refuses_inputs():
    cell, h = lltm_jit.LLTMCell(5, 7), torch.zeros(2, 7)
    for state in (None, (h, h)):
        said = refusal(RuntimeError, cell, torch.zeros(2, 6), state)
        assert said == "LLTMCell(): expected input to have 5 features, but got 6"
    for input, got in ((None, "None"), ([[1.0]], "list")):
        said = refusal(TypeError, cell, input)
        assert said == f"LLTMCell(): expected input to be a tensor, but got {got}"
