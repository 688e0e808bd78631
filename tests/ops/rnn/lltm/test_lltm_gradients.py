"""The LLTM cell's gradients: every input, order and way of saving."""

from __future__ import annotations

import pytest
import torch
from lltm_testing import Inputs, cell_inputs
from op_testing import DEVICES, EVERY_PATH, taken
from torch import Tensor

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


@pytest.mark.parametrize("device", DEVICES)
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


def both(function, inputs: Inputs) -> list[Tensor]:
    """Results and gradients, with a gradient that is not the same everywhere."""
    results = function(*inputs)
    outer = [torch.linspace(-1, 1, r.numel(), device=r.device).view_as(r).to(r) for r in results]
    leaves = [t for t in inputs if t is not None and t.requires_grad]
    return [*results, *torch.autograd.grad(results, leaves, outer)]


@pytest.mark.parametrize("device", DEVICES)
def test_saved_tensors_hooks(device):
    """What is saved can be packed, or wait on the CPU; nothing is kept beside it."""
    inputs = cell_inputs(device=device, requires_grad=True)
    expected = both(lltm_cell, inputs)

    def with_hooks(hooks):
        def run(*args):
            with hooks:
                return lltm_cell(*args)

        return run

    on_cpu = with_hooks(torch.autograd.graph.save_on_cpu())
    torch.testing.assert_close(both(on_cpu, inputs), expected, rtol=0, atol=0)

    packed, store = [], []

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        store.append(tensor.detach().clone())
        return len(store) - 1

    kept = with_hooks(torch.autograd.graph.saved_tensors_hooks(pack, store.__getitem__))
    torch.testing.assert_close(both(kept, inputs), expected, rtol=0, atol=0)
    # The five inputs, the new cell and the gates.
    assert sorted(packed) == sorted([*(tuple(t.shape) for t in inputs), (3, 7), (3, 21)])

    zeros = with_hooks(torch.autograd.graph.saved_tensors_hooks(lambda t: t, torch.zeros_like))
    changed = both(zeros, inputs)[2:]
    assert not any(torch.equal(c, e) for c, e in zip(changed[:4], expected[2:6], strict=True))
