"""Gradients of whole sequences: every input, order and way of saving."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from sequence_testing import LAYERS, Inputs, cell_of, inputs_of, reference
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.functional import recurrent_sequence


def small_inputs(cell: str, device: str = "cpu", control: bool = False, **kwargs) -> Inputs:
    return inputs_of(cell, 3, 2, 3, device=device, control=control, **kwargs)


def with_leaves(inputs: Inputs, leaves: list[Tensor]) -> Inputs:
    """The inputs with other tensors for those that gradients are taken of."""
    rest = iter(leaves)
    return Inputs(*(t if t is None else next(rest) for t in inputs[:6]), inputs.control)


def ours(cell: str, inputs: Inputs, reverse: bool = False) -> tuple[Tensor, ...]:
    return recurrent_sequence(cell, *inputs, reverse=reverse)


def loss_of(results: tuple[Tensor, ...]) -> Tensor:
    """Not linear in any result."""
    return sum(result.pow(3).sum() + result.sin().sum() for result in results)


@pytest.mark.parametrize("control", [False, True])
def test_gradcheck_in_reverse(cell, control, device):
    """Along random directions; test_every_operator.py takes each element of the other order."""
    inputs = small_inputs(cell, device, control)
    if control:  # what is held then comes first in memory
        inputs = inputs._replace(control=inputs.control.flip(0))
    inputs = inputs.requires_grad()

    def function(*leaves):
        results = ours(cell, with_leaves(inputs, leaves), reverse=True)
        return results[: 1 + cell_of(cell).states]

    leaves = inputs.leaves()
    batched = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(function, leaves, fast_mode=True, **batched)
    assert gradgradcheck(function, leaves, fast_mode=True)


def test_what_is_kept(cell):
    """Where a cell adds its gates, the sums are, and the input's part is not, until the end."""
    inputs = small_inputs(cell).requires_grad()
    gates = inputs.gates * 1
    kept = weakref.ref(gates)
    results = ours(cell, inputs._replace(gates=gates))
    del gates
    assert (kept() is None) == cell_of(cell).adds_gates
    first = torch.autograd.grad(loss_of(results), inputs.gates, create_graph=True)
    assert torch.autograd.grad(first[0].square().sum(), inputs.gates)[0].isfinite().all()
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        ours(cell, inputs)
    # The inputs, but gates whose sums are kept; the output, the gates and the cell states.
    assert len(saved) == len(inputs.leaves()) + 3 - cell_of(cell).adds_gates


def test_output_changed_in_place_is_noticed():
    given = small_inputs("lstm").requires_grad()
    output, _, c_n = ours("lstm", given)
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (output.sum() + c_n.sum()).backward()


def test_last_states_may_be_changed_in_place(cell, device):
    inputs = small_inputs(cell, device)
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


@pytest.mark.parametrize("checkpoint", [0, 2])
def test_second_derivatives_of_layers(kind, checkpoint, device):
    """Which cuDNN refuses of its own; here of two layers in both directions."""
    options = {"bidirectional": True, "dtype": torch.double, "device": device}
    layer = LAYERS[kind](2, 3, 2, checkpoint=checkpoint, **options)
    x = torch.randn(4, 2, 2, dtype=torch.double, device=device, requires_grad=True)
    leaves = [x, *layer.parameters()]

    def penalty(x):
        (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        return (gradient.norm() - 1).square()

    found = torch.autograd.grad(penalty(x), leaves)
    along = [torch.randn_like(tensor) for tensor in leaves]
    slope = sum((a * g).sum() for a, g in zip(along, found, strict=True))
    values = []
    for step in (1e-5, -1e-5):
        moved = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter, direction in zip(moved.parameters(), along[1:], strict=True):
                parameter.add_(direction, alpha=step)
        layer, kept = moved, layer
        values.append(penalty((x + step * along[0]).detach().requires_grad_()))
        layer = kept
    torch.testing.assert_close((values[0] - values[1]) / 2e-5, slope, rtol=1e-5, atol=1e-7)


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
