"""Whole sequences and their layers under torch.func."""

from __future__ import annotations

import copy

import pytest
import torch
from sequence_testing import LAYERS, Inputs, controls, inputs_of
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from lltm_jit.functional import recurrent_sequence


def ours(cell: str, inputs: Inputs, reverse: bool = False) -> tuple[Tensor, ...]:
    return recurrent_sequence(cell, *inputs, reverse=reverse)


@pytest.fixture(autouse=True)
def _rules_for_vmap():
    """Our operators run once for a whole batch, and not once a sample as without a rule."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def test_vmap_over_the_control(cell, reverse, device):
    """Alone, and with all others; test_every_operator.py has those without it."""
    inputs = inputs_of(cell, 4, 2, 3, device=device, control=True).requires_grad()
    controls_of_all = torch.stack([controls(4, 2).to(device) for _ in range(3)])
    more = controls_of_all.flip(1) if reverse else controls_of_all  # what is held comes first
    alone = inputs._replace(control=more)
    every = Inputs(*(t if t is None else torch.stack([t, 2 * t, -t]) for t in inputs[:6]), more)
    for given, shared in ((alone, inputs[:6]), (every, ())):
        in_dims = tuple(None if t is None or i < len(shared) else 0 for i, t in enumerate(given))
        actual = vmap(lambda *tensors: ours(cell, Inputs(*tensors), reverse), in_dims)(*given)
        rows = [
            ours(
                cell,
                Inputs(*(t if d is None else t[n] for t, d in zip(given, in_dims, strict=True))),
                reverse,
            )
            for n in range(3)
        ]
        expected = tuple(torch.stack(results) for results in zip(*rows, strict=True))
        found = []
        for results in (actual, expected):
            loss = sum(result.square().sum() for result in results)
            grads = torch.autograd.grad(loss, inputs.leaves(), retain_graph=True)
            found.append([*results, *grads])
        torch.testing.assert_close(*found)


def test_vmap_over_lengths(kind, device):
    """Which cannot be looked into then: what they have beyond the steps counts as all of them."""
    layer = LAYERS[kind](3, 4, bidirectional=True, device=device)
    x = torch.randn(2, 5, 3, 3, device=device)
    lengths = torch.tensor([[1, 5, 2], [0, 9, 3]], device=device)
    actual = vmap(lambda x, lengths: layer(x, lengths=lengths)[0])(x, lengths)
    for i, given in enumerate(([1, 5, 2], [0, 5, 3])):
        torch.testing.assert_close(actual[i], layer(x[i], lengths=given)[0])


def test_ensemble(kind, device):
    """Many layers as one: forward, and the gradients of every member."""
    options = {"bidirectional": True, "device": device, "dtype": torch.double}
    layers = [LAYERS[kind](3, 4, 2, **options) for _ in range(3)]
    x = torch.randn(5, 2, 3, device=device, dtype=torch.double)
    reset = torch.rand(5, 2, device=device) < 0.3
    named = {"lengths": [5, 3], "reset": reset}
    skeleton = copy.deepcopy(layers[0]).to("meta")
    parameters, buffers = stack_module_state(layers)

    def member(parameters, buffers, x):
        output, state = functional_call(skeleton, (parameters, buffers), (x,), named)
        return output, state if isinstance(state, Tensor) else state[-1]

    output, state = vmap(member, in_dims=(0, 0, None))(parameters, buffers, x)
    loss = output.square().sum() + state.sum()
    gradients = torch.autograd.grad(loss, [*parameters.values()])
    for i, layer in enumerate(layers):
        expected = member(dict(layer.named_parameters()), {}, x)
        torch.testing.assert_close((output[i], state[i]), expected)
        loss = expected[0].square().sum() + expected[1].sum()
        torch.testing.assert_close(
            [gradient[i] for gradient in gradients],
            list(torch.autograd.grad(loss, list(layer.parameters()))),
        )
