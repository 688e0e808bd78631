"""The LLTM cell in training: mixed precision and parametrisations."""

from __future__ import annotations

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import ACTIVATIONS, assert_accurate
from torch import nn
from torch.nn.utils import parametrize

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("impl", ["aten", "fused"])
def test_autocast(impl, device):
    inputs = cell_inputs(dtype=torch.float, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        new_h, new_cell = lltm_cell(*inputs, impl=impl)
        # The state goes round: a half hidden state, a float cell.
        again_h, again_cell = lltm_cell(*inputs[:3], new_h, new_cell, impl=impl)
    assert (new_h.dtype, new_cell.dtype) == (torch.bfloat16, torch.float)
    assert (again_h.dtype, again_cell.dtype) == (torch.bfloat16, torch.float)
    cast = [t.bfloat16() for t in inputs[:4]]
    expected = lltm_cell(*cast, inputs[4], impl=impl)
    torch.testing.assert_close((new_h, new_cell), expected, rtol=0, atol=0)
    grads = torch.autograd.grad(again_h.float().sum() + again_cell.sum(), inputs)
    assert all(g.dtype == torch.float for g in grads)
    exact, baseline = (two_steps_of_the_reference(inputs, device, enabled) for enabled in (0, 1))
    for grad, e, b in zip(grads, exact, baseline, strict=True):
        assert_accurate(grad.bfloat16(), e.double(), b.bfloat16(), sums=True, parts=ACTIVATIONS)


def two_steps_of_the_reference(inputs, device, autocast):
    with torch.autocast(device, torch.bfloat16, enabled=bool(autocast)):
        h, c = lltm_cell_reference(*inputs)
        h, c = lltm_cell_reference(*inputs[:3], h, c)
    return torch.autograd.grad(h.float().sum() + c.sum(), inputs)


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


def test_parametrisation(device):
    class Symmetric(nn.Module):
        def forward(self, matrix):
            return (matrix + matrix.flip(0)) / 2

    input = torch.randn(3, 5, device=device)
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    parametrize.register_parametrization(cell, "weights", Symmetric())
    torch.testing.assert_close(cell.weights, cell.weights.flip(0))
    original = cell.parametrizations.weights.original

    def grad_of_original(function):
        h, c = function()
        return torch.autograd.grad(h.sum() + c.square().sum(), original)

    zeros = input.new_zeros(3, 7)
    torch.testing.assert_close(
        grad_of_original(lambda: cell(input)),
        grad_of_original(
            lambda: lltm_cell_reference(input, Symmetric()(original), cell.bias, zeros, zeros)
        ),
    )
