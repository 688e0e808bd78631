"""The LLTM cell's gradients: every input, order and way of saving."""

from __future__ import annotations

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import EVERY_PATH, taken

from lltm_jit.functional import lltm_cell
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@EVERY_PATH
@pytest.mark.parametrize("shape", [(21,), (1, 21)])
def test_bias_gradient_has_the_shape_of_bias(shape, path):
    with taken(path, "rnn") as device:
        input, weights, bias, old_h, old_cell = cell_inputs(device=device, requires_grad=True)
        bias = bias.detach().reshape(shape).requires_grad_()
        new_h, _ = lltm_cell(input, weights, bias, old_h, old_cell)
        (grad_bias,) = torch.autograd.grad(new_h.sum(), bias, create_graph=True)
        assert grad_bias.shape == shape
        (again,) = torch.autograd.grad(grad_bias.sum(), bias)
        assert again.shape == shape


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
    """The five inputs, the new cell and the gates."""
    inputs, saved = cell_inputs(requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        lltm_cell(*inputs)
    expected = [*(tuple(t.shape) for t in inputs), (3, 7), (3, 21)]
    assert sorted(tuple(t.shape) for t in saved) == sorted(expected)
