"""Gradients of whole sequences: every input, order and way of saving."""

from __future__ import annotations

import weakref

import pytest
import torch
from layer_testing import derivatives
from sequence_testing import cell_of, check_derivatives, inputs_of, ours, reference
from torch import Tensor


def test_gradients_of_the_operator_have_the_dtypes_of_its_inputs(cell, device):
    """As its meta function says. Autograd would cast them."""
    inputs = inputs_of(cell, dtype=torch.half, device=device)
    given = (*inputs[:6], None, False, cell)
    output, _, _, *saved = torch.ops.lltm_jit.recurrent_sequence_forward(*given)
    mask = [tensor is not None for tensor in inputs[:6]]
    found = torch.ops.lltm_jit.recurrent_sequence_backward(
        output.cos(), None, None, *given, False, False, output, *saved, mask
    )
    wanted = [grad for grad, is_wanted in zip(found, mask, strict=True) if is_wanted]
    assert {grad.dtype for grad in wanted} == {torch.half}


@pytest.mark.parametrize("control", [False, True])
def test_in_reverse(cell, control, device):
    inputs = inputs_of(cell, 3, 2, 3, device=device, control=control, reverse=True)
    check_derivatives(cell, inputs, reverse=True)


def test_what_is_kept(cell):
    """Where a cell adds its gates, the sums are, and the input's part is not, until the end."""
    inputs = inputs_of(cell, 3, 2, 3).requires_grad()
    gates = inputs.gates * 1
    kept = weakref.ref(gates)
    results = ours(cell, inputs._replace(gates=gates))
    del gates
    assert (kept() is None) == cell_of(cell).adds_gates
    assert all(t.isfinite().all() for t in derivatives(results, [inputs.gates], orders=2))
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        ours(cell, inputs)
    # The inputs, but gates whose sums are kept; the output, the gates and the cell states.
    assert len(saved) == len(inputs.leaves()) + 3 - cell_of(cell).adds_gates


def test_output_changed_in_place_is_noticed():
    given = inputs_of("lstm", 3, 2, 3).requires_grad()
    output, _, c_n = ours("lstm", given)
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (output.sum() + c_n.sum()).backward()


def test_last_states_may_be_changed_in_place(cell, device):
    inputs = inputs_of(cell, 3, 2, 3, device=device)
    found = []
    for function in (ours, reference):
        given = inputs.requires_grad()
        output, *states = function(cell, given)
        for state in states[: cell_of(cell).states]:
            # The reference's are views of its output.
            (state if function is ours else state.clone()).mul_(2)
        factor = 1 if function is ours else 2
        loss = output.sum() + sum(factor * state.sum() for state in states)
        found.append(torch.autograd.grad(loss, given.leaves()))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_gates_outlive_the_next_backward_pass(cell):
    """A thread takes the memory of large ones again, but not while somebody has it."""
    inputs = inputs_of(cell, 8, 16, 512)._replace(h_0=None).requires_grad()
    assert inputs.gates.nbytes >= 1 << 20
    grads, kept = [], []
    for factor in 1, 2, 4:
        results = ours(cell, inputs)
        (grad,) = torch.autograd.grad(factor * results[0].sum(), inputs.gates)
        grads.append(grad)
        kept.append(grad.clone())
    for factor, grad, copied in zip((1, 2, 4), grads, kept, strict=True):
        assert torch.equal(grad, copied)
        assert torch.equal(grad, factor * grads[0])  # powers of two, which round nothing
    places = {grad.untyped_storage().data_ptr() for grad in grads}
    assert len(places) == len(grads)
