"""The LLTM cell's gradients: every input, order and way of saving."""

from __future__ import annotations

import pytest
import torch
from op_testing import (
    DEVICES,
    EVERY_PATH,
    Inputs,
    cell_inputs,
    subsets,
    taken,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lltm_jit.functional import lltm_cell
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", ["aten", "fused"])
def test_gradcheck(impl, device):
    inputs = cell_inputs(device=device, requires_grad=True)

    def function(*args):
        return lltm_cell(*args, impl=impl)

    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("required", subsets(5))
@pytest.mark.parametrize("sizes", [(2, 3, 4), (33, 40, 64)])
def test_gradients_of_every_subset_of_inputs(sizes, required, device):
    inputs = cell_inputs(*sizes, device=device)
    if device == "cuda":  # what is not written is then seen
        torch.full((1_000_000,), float("nan"), dtype=torch.double, device=device)
    for tensor, r in zip(inputs, required, strict=True):
        tensor.requires_grad_(r)
    leaves = [t for t in inputs if t.requires_grad]
    actual = torch.autograd.grad(sum(t.sum() for t in lltm_cell(*inputs)), leaves)
    expected = torch.autograd.grad(sum(t.sum() for t in lltm_cell_reference(*inputs)), leaves)
    torch.testing.assert_close(actual, expected)
    new_h, _ = lltm_cell(*inputs)
    first = torch.autograd.grad(new_h.sum(), leaves, create_graph=True, allow_unused=True)
    expected_h, _ = lltm_cell_reference(*inputs)
    expected_first = torch.autograd.grad(
        expected_h.sum(), leaves, create_graph=True, allow_unused=True
    )
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
    expected_second = torch.autograd.grad(sum(g.square().sum() for g in expected_first), leaves)
    torch.testing.assert_close(second, expected_second)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("output", [0, 1])
def test_undefined_output_gradient(output, device):
    inputs = cell_inputs(device=device, requires_grad=True)
    actual = torch.autograd.grad(lltm_cell(*inputs)[output].sum(), inputs, allow_unused=True)
    expected = torch.autograd.grad(
        lltm_cell_reference(*inputs)[output].sum(), inputs, allow_unused=True
    )
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if e is None else e)


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


def test_backward_twice_needs_retain_graph():
    inputs = cell_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    loss = new_h.sum() + new_cell.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_saved_tensor_changed_in_place_is_noticed():
    inputs = cell_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    with torch.no_grad():
        new_cell.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (new_h.sum() + new_cell.sum()).backward()


@pytest.mark.parametrize("position", range(5))
def test_input_changed_in_place_is_noticed(position):
    """The bias and the old cell, too, which second derivatives read."""
    inputs = cell_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    with torch.no_grad():
        inputs[position].add_(1)
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("output", [0, 1])
def test_second_derivatives_through_one_result(output, device):
    inputs = cell_inputs(device=device, requires_grad=True)

    def second(function):
        loss = function(*inputs)[output].pow(3).sum()
        first = torch.autograd.grad(loss, inputs, create_graph=True, materialize_grads=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    torch.testing.assert_close(second(lltm_cell), second(lltm_cell_reference))


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


@pytest.mark.parametrize("device", DEVICES)
def test_one_tensor_as_several_inputs(device):
    _, weights, bias, state, _ = cell_inputs(3, 7, 7, device=device, requires_grad=True)

    def run(function):
        results = function(state, weights, bias, state, state)
        first = torch.autograd.grad(
            results[0].square().sum() + results[1].pow(3).sum(), state, create_graph=True
        )
        return [*first, *torch.autograd.grad(first[0].square().sum(), [state, weights, bias])]

    torch.testing.assert_close(run(lltm_cell), run(lltm_cell_reference))


@pytest.mark.parametrize("device", DEVICES)
def test_no_graph_without_need(device):
    inputs = cell_inputs(device=device, requires_grad=True)
    expected = lltm_cell(*inputs)
    with torch.no_grad():
        plain = lltm_cell(*inputs)
    with torch.inference_mode():
        inferred = lltm_cell(*inputs)
    assert [r.requires_grad for r in (*expected, *plain, *inferred)] == [True] * 2 + [False] * 4
    assert all(r.is_inference() for r in inferred)
    torch.testing.assert_close(plain, tuple(r.detach() for r in expected), rtol=0, atol=0)
    torch.testing.assert_close(
        tuple(r.clone() for r in inferred), tuple(r.detach() for r in expected), rtol=0, atol=0
    )
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        lltm_cell(*inputs[:3], *inferred)


@pytest.mark.parametrize("device", DEVICES)
def test_backward_adds_to_grad(device):
    inputs = cell_inputs(device=device, requires_grad=True)
    expected = both(lltm_cell, inputs)[2:]
    results = lltm_cell(*inputs)
    outer = [torch.linspace(-1, 1, 21, device=device).view(3, 7).double()] * 2
    torch.autograd.backward(results, outer, retain_graph=True)
    torch.testing.assert_close([t.grad for t in inputs], expected, rtol=0, atol=0)
    torch.autograd.backward(results, outer)
    torch.testing.assert_close([t.grad for t in inputs], [2 * e for e in expected])
