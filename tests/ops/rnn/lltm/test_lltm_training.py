"""The LLTM cell in training: mixed precision, checkpoints, hooks, parametrisations, copies."""

from __future__ import annotations

import copy

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import ACTIVATIONS, DEVICES, assert_accurate
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_of_the_reference_takes_a_mix_of_dtypes(device):
    """As plain PyTorch does; without autocast the mix is refused."""
    inputs = cell_inputs(dtype=torch.float, device=device)
    mixed = (inputs[0].bfloat16(), *inputs[1:])
    with torch.autocast(device, torch.bfloat16):
        actual = lltm_cell(*mixed, impl="reference")
        torch.testing.assert_close(actual, lltm_cell_reference(*mixed), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"expected weights to have the dtype of input"):
        lltm_cell(*mixed, impl="reference")


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_leaves_the_tutorial_calls(device):
    inputs = cell_inputs(dtype=torch.float, device=device)

    def run():
        results = lltm_forward(*inputs)
        ones = [torch.ones_like(t) for t in results[:2]]
        return results + lltm_backward(*ones, *results[1:], inputs[1])

    expected = run()
    with torch.autocast(device, torch.bfloat16):
        torch.testing.assert_close(run(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_grad_scaler(dtype, device):
    """Scaled gradients are the unscaled ones; a step whose gradients overflow is left out."""
    torch.manual_seed(0)
    layer = lltm_jit.LLTM(5, 16, device=device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=1000)
    input, target = torch.randn(4, 3, 5, device=device), torch.rand(4, 3, 16, device=device)

    def loss(factor=1.0):
        with torch.autocast(device, dtype):
            output, _ = layer(input)
            return nn.functional.mse_loss(output.float(), target) * factor

    plain = torch.autograd.grad(loss(), list(layer.parameters()))
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        losses.append(loss())
        scaler.scale(losses[-1]).backward()
        scaler.unscale_(optimizer)
        if step == 0:
            grads = [p.grad for p in layer.parameters()]
            assert all(g.dtype == torch.float for g in grads)
            torch.testing.assert_close(grads, list(plain), rtol=0.05, atol=1e-3)
        scaler.step(optimizer)
        scaler.update()
    assert losses[-1] < 0.9 * losses[0]
    assert scaler.get_scale() == 2.0**10

    before = copy.deepcopy(layer.state_dict())
    optimizer.zero_grad()
    scaler.scale(loss(float("inf"))).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**9
    torch.testing.assert_close(layer.state_dict(), before, rtol=0, atol=0)


def critic_and_penalty(device, function=lltm_cell):
    """A critic of one cell, and how far its gradient at a point is from length one."""
    torch.manual_seed(1)
    weights = (0.3 * torch.randn(24, 12)).to(device).requires_grad_()
    bias, out = (torch.randn(n).to(device).requires_grad_() for n in (24, 8))
    points = torch.randn(32, 4).to(device).requires_grad_()
    zeros = torch.zeros(32, 8, device=device)

    def penalty():
        new_h, new_cell = function(points, weights, bias, zeros, zeros)
        score = (new_h + new_cell) @ out
        (slope,) = torch.autograd.grad(score.sum(), points, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    return [weights, bias, out], penalty


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_penalty_trains(device):
    parameters, penalty = critic_and_penalty(device)
    expected_parameters, expected = critic_and_penalty(device, lltm_cell_reference)
    torch.testing.assert_close(
        torch.autograd.grad(penalty(), parameters),
        torch.autograd.grad(expected(), expected_parameters),
    )
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        losses.append(penalty())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.05 * losses[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(use_reentrant, device):
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    input = torch.randn(3, 5, device=device, requires_grad=True)
    leaves = [input, *cell.parameters()]
    calls = []
    cell.register_forward_hook(lambda *_: calls.append(1))

    def two_steps(input):
        return cell(input, cell(input))

    def gradients(function):
        for leaf in leaves:
            leaf.grad = None
        sum(r.square().sum() for r in function(input)).backward()
        return [leaf.grad for leaf in leaves]

    expected = gradients(two_steps)
    calls.clear()
    actual = gradients(lambda x: checkpoint(two_steps, x, use_reentrant=use_reentrant))
    assert len(calls) > 2  # again in the backward pass, which may stop once it has what it needs
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_hooks(device):
    cell = lltm_jit.LLTMCell(5, 7, device=device)
    input = torch.randn(3, 5, device=device, requires_grad=True)
    new_h, new_cell = cell(input)
    expected = torch.autograd.grad(2 * new_h.sum() + new_cell.sum(), [input, *cell.parameters()])

    seen = []
    cell.register_forward_pre_hook(lambda module, args: seen.append("pre"))
    cell.register_forward_hook(lambda module, args, results: seen.append("forward"))
    cell.register_full_backward_hook(lambda module, grads, outer: seen.append(len(outer)))
    cell.weights.register_post_accumulate_grad_hook(lambda p: seen.append("weights"))
    new_h, new_cell = cell(input)
    new_h.register_hook(lambda g: 2 * g)
    (new_h.sum() + new_cell.sum()).backward()
    assert seen == ["pre", "forward", "weights", 2] or seen == ["pre", "forward", 2, "weights"]
    actual = (input.grad, cell.weights.grad, cell.bias.grad)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_hooks_of_the_node(device):
    inputs = cell_inputs(device=device, requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    node = new_h.grad_fn
    assert node is new_cell.grad_fn
    assert node.name() == "LltmCellBackward"
    outer, inner = [], []
    node.register_prehook(outer.extend)
    node.register_hook(lambda grads, _: inner.extend(grads))
    grads = torch.autograd.grad(new_h.sum() + new_cell.sum(), inputs)
    torch.testing.assert_close(outer, [torch.ones_like(new_h)] * 2)
    torch.testing.assert_close(inner, list(grads), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_parametrisation_and_weight_norm(device):
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

    plain = lltm_jit.LLTMCell(5, 7, device=device)
    normed = weight_norm(copy.deepcopy(plain), "weights")
    torch.testing.assert_close(normed(input), plain(input))
    optimizer = torch.optim.SGD(normed.parameters(), lr=0.1)
    normed(input)[0].sum().backward()
    size, direction = normed.parametrizations.weights.parameters()
    composed = size * direction / direction.norm(dim=1, keepdim=True)
    h, _ = lltm_cell_reference(input, composed, normed.bias, zeros, zeros)
    torch.testing.assert_close(
        (size.grad, direction.grad), torch.autograd.grad(h.sum(), (size, direction))
    )
    optimizer.step()
    assert not torch.allclose(normed(input)[0], plain(input)[0])
    again = weight_norm(lltm_jit.LLTMCell(5, 7, device=device), "weights")
    again.load_state_dict(normed.state_dict())
    torch.testing.assert_close(again(input), normed(input), rtol=0, atol=0)
    parametrize.remove_parametrizations(again, "weights")
    assert [name for name, _ in again.named_parameters()] == ["bias", "weights"]
    torch.testing.assert_close(again(input), normed(input))
