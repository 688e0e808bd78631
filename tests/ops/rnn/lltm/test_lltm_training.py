"""The LLTM cell as a module and in training: files, mixed precision, parametrisations."""

import copy
import pickle

import pytest
import torch
from layer_testing import derivatives
from lltm_testing import cell_inputs
from op_testing import ACTIVATIONS, bits, refusal
from sequence_testing import all_accurate
from torch import nn
from torch.nn.utils import parametrize

import lltm_jit
from lltm_jit.functional import lltm_cell
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("impl", ["aten", "fused"])
def test_autocast(impl, device):
    inputs = cell_inputs(dtype=torch.float, device=device, requires_grad=True)

    def two_steps(function, enabled, **named):
        """The state goes round: a half hidden state, a float cell."""
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            first = function(*inputs, **named)
            again = function(*inputs[:3], *first, **named)
        return first, again, torch.autograd.grad(again[0].float().sum() + again[1].sum(), inputs)

    first, again, grads = two_steps(lltm_cell, True, impl=impl)
    assert [t.dtype for t in (*first, *again)] == [torch.bfloat16, torch.float] * 2
    expected = lltm_cell(*(t.bfloat16() for t in inputs[:4]), inputs[4], impl=impl)
    torch.testing.assert_close(first, expected, rtol=0, atol=0)
    assert {grad.dtype for grad in grads} == {torch.float}
    exact, usual = (two_steps(lltm_cell_reference, enabled)[2] for enabled in (False, True))
    found, usual = ([grad.bfloat16() for grad in each] for each in (grads, usual))
    all_accurate(found, [e.double() for e in exact], usual, sums=True, parts=ACTIVATIONS)


def test_autocast_of_the_reference_takes_a_mix_of_dtypes(device):
    """As plain PyTorch does; without autocast the mix is refused."""
    inputs = cell_inputs(dtype=torch.float, device=device)
    mixed = (inputs[0].bfloat16(), *inputs[1:])
    with torch.autocast(device, torch.bfloat16):
        actual = lltm_cell(*mixed, impl="reference")
        torch.testing.assert_close(actual, lltm_cell_reference(*mixed), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"expected weights to have the dtype of input"):
        lltm_cell(*mixed, impl="reference")


class Symmetric(nn.Module):
    def forward(self, matrix):
        return (matrix + matrix.flip(0)) / 2


def test_parametrisation(device):
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    parametrize.register_parametrization(cell, "weights", Symmetric())
    torch.testing.assert_close(cell.weights, cell.weights.flip(0))
    original, x = cell.parametrizations.weights.original, torch.randn(3, 5, device=device)
    zeros = x.new_zeros(3, 7)
    expected = lltm_cell_reference(x, Symmetric()(original), cell.bias, zeros, zeros)
    found = [derivatives(results, [original]) for results in (cell(x), expected)]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(21,), (1, 21)])
def test_bias_gradient_has_the_shape_of_bias(shape, path):
    input, weights, bias, *state = cell_inputs(device=path, requires_grad=True)
    bias = bias.detach().reshape(shape).requires_grad_()
    first, second = derivatives(lltm_cell(input, weights, bias, *state), [bias], orders=2)
    assert first.shape == second.shape == shape


def test_what_is_saved():
    inputs, saved = cell_inputs(requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        lltm_cell(*inputs)
    expected = [*(tuple(t.shape) for t in inputs), (3, 7), (3, 21)]
    assert sorted(tuple(t.shape) for t in saved) == sorted(expected)


class TutorialLLTM(nn.Module):
    """The module of the tutorial, as its users have it."""

    def __init__(self, input_features, state_size, bias_shape):
        super().__init__()
        self.weights = nn.Parameter(torch.rand(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.rand(bias_shape))

    def forward(self, input, state):
        return lltm_cell_reference(input, self.weights, self.bias, *state)


@pytest.mark.parametrize("bias_shape", [(21,), (1, 21)])
def test_state_dict_goes_to_the_tutorial_module_and_back(bias_shape):
    ours, theirs = lltm_jit.LLTMCell(5, 7), TutorialLLTM(5, 7, bias_shape)
    theirs.load_state_dict({"weights": ours.weights, "bias": ours.bias.view(bias_shape)})
    input, state = torch.randn(3, 5), (torch.randn(3, 7), torch.randn(3, 7))
    torch.testing.assert_close(ours(input, state), theirs(input, state))
    nested = nn.ModuleDict({"rnn": lltm_jit.LLTMCell(5, 7)})
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


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((5, 7.0), TypeError, "hidden_size to be an int, but got float"),
        (("5", 7), TypeError, "input_size to be an int, but got str"),
        ((5, -7), ValueError, "hidden_size to be 0 or more, but got -7"),
    ],
)
def test_modules_refuse_sizes(sizes, error, message):
    assert refusal(error, lltm_jit.LLTMCell, *sizes) == f"LLTMCell(): expected {message}"


def test_the_cell_refuses_inputs():
    cell, h = lltm_jit.LLTMCell(5, 7), torch.zeros(2, 7)
    for state in (None, (h, h)):
        said = refusal(RuntimeError, cell, torch.zeros(2, 6), state)
        assert said == "LLTMCell(): expected input to have 5 features, but got 6"
    for input, got in ((None, "None"), ([[1.0]], "list")):
        said = refusal(TypeError, cell, input)
        assert said == f"LLTMCell(): expected input to be a tensor, but got {got}"
