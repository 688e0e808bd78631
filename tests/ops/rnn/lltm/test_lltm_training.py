"""The LLTM cell in training: what is saved, mixed precision and parametrisations."""

from __future__ import annotations

import pytest
import torch
from layer_testing import derivatives
from lltm_testing import cell_inputs
from op_testing import ACTIVATIONS
from sequence_testing import all_accurate
from torch import nn
from torch.nn.utils import parametrize

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
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


def test_autocast_leaves_the_tutorial_calls(device):
    inputs = cell_inputs(dtype=torch.float, device=device)

    def run():
        results = lltm_forward(*inputs)
        ones = [torch.ones_like(t) for t in results[:2]]
        return results + lltm_backward(*ones, *results[1:], inputs[1])

    expected = run()
    with torch.autocast(device, torch.bfloat16):
        torch.testing.assert_close(run(), expected, rtol=0, atol=0)


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


def test_saved_tensor_changed_in_place_is_noticed():
    inputs = cell_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    with torch.no_grad():
        new_cell.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (new_h.sum() + new_cell.sum()).backward()


def test_hidden_state_may_be_changed_in_place(device):
    inputs = cell_inputs(device=device, requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    new_h[0].mul_(2)
    expected_h, expected_cell = lltm_cell_reference(*inputs)
    factor = torch.ones_like(expected_h).index_fill_(0, torch.tensor(0, device=device), 2)
    torch.testing.assert_close(
        torch.autograd.grad(new_h.sum() + new_cell.sum(), inputs),
        torch.autograd.grad((factor * expected_h).sum() + expected_cell.sum(), inputs),
    )


def test_what_is_saved():
    inputs, saved = cell_inputs(requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        lltm_cell(*inputs)
    expected = [*(tuple(t.shape) for t in inputs), (3, 7), (3, 21)]
    assert sorted(tuple(t.shape) for t in saved) == sorted(expected)
