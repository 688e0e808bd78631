"""Whole sequences and their layers under torch.func."""

from __future__ import annotations

import copy

import pytest
import torch
from op_testing import DEVICES
from sequence_testing import CELLS, LAYERS, Inputs, cell_of, controls, inputs_of
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from lltm_jit.functional import recurrent_sequence


def ours(cell: str, inputs: Inputs, reverse: bool = False) -> tuple[Tensor, ...]:
    return recurrent_sequence(cell, *inputs, reverse=reverse)


def of_leaves(function, cell: str, inputs: Inputs):
    """The results that are not empty, as a function of the tensors with gradients."""

    def call(*leaves):
        rest = iter(leaves)
        given = (t if t is None else next(rest) for t in inputs[:6])
        return function(cell, Inputs(*given, inputs.control))[: 1 + cell_of(cell).states]

    return call


@pytest.fixture(autouse=True)
def _rules_for_vmap():
    """Our operators run once for a whole batch, and not once a sample as without a rule."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_vmap_over_each_input(cell, reverse, device):
    """Values and gradients, with a batch of one input at a time, of all, and of the control."""
    inputs = inputs_of(cell, 4, 2, 3, device=device, control=True).requires_grad()
    more = torch.stack([inputs.control, *(controls(4, 2).to(device) for _ in range(2))])
    if reverse:  # what is held then comes first in memory
        inputs, more = inputs._replace(control=inputs.control.flip(0)), more.flip(1)
    stacked = Inputs(*(t if t is None else torch.stack([t, 2 * t, -t]) for t in inputs[:6]), more)
    there = [i for i, tensor in enumerate(inputs) if tensor is not None]
    for batched in [*([i] for i in there), there]:
        args = [
            s if i in batched else p for i, (s, p) in enumerate(zip(stacked, inputs, strict=True))
        ]
        in_dims = tuple(0 if i in batched else None for i in range(len(args)))
        actual = vmap(lambda *tensors: ours(cell, Inputs(*tensors), reverse), in_dims)(*args)
        rows = [
            ours(cell, Inputs(*(t[n] if i in batched else t for i, t in enumerate(args))), reverse)
            for n in range(3)
        ]
        expected = tuple(torch.stack(results) for results in zip(*rows, strict=True))
        torch.testing.assert_close(actual, expected)
        gradients = [
            torch.autograd.grad(
                sum(result.square().sum() for result in results), inputs.leaves(), retain_graph=True
            )
            for results in (actual, expected)
        ]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_over_other_dimensions_and_twice(device):
    gates, weight_hh, *_ = inputs_of("lstm", 4, 2, 3, device=device)
    h = torch.randn(2, 5, 3, 6, dtype=torch.double, device=device)
    over_last = vmap(
        lambda h: recurrent_sequence("lstm", gates, weight_hh, h_0=h)[0], in_dims=2, out_dims=1
    )
    actual = vmap(over_last, in_dims=1, out_dims=2)(h)
    assert actual.shape == (4, 6, 5, 2, 3)
    for n in range(5):
        for m in range(6):
            expected = recurrent_sequence("lstm", gates, weight_hh, h_0=h[:, n, :, m])[0]
            torch.testing.assert_close(actual[:, m, n], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", LAYERS)
def test_vmap_over_lengths(kind, device):
    """Which cannot be looked into then: what they have beyond the steps counts as all of them."""
    layer = LAYERS[kind](3, 4, bidirectional=True, device=device)
    x = torch.randn(2, 5, 3, 3, device=device)
    lengths = torch.tensor([[1, 5, 2], [0, 9, 3]], device=device)
    actual = vmap(lambda x, lengths: layer(x, lengths=lengths)[0])(x, lengths)
    for i, given in enumerate(([1, 5, 2], [0, 5, 3])):
        torch.testing.assert_close(actual[i], layer(x[i], lengths=given)[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", LAYERS)
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", LAYERS)
def test_per_sample_gradients(kind, device):
    layer = LAYERS[kind](3, 4, device=device, dtype=torch.double)
    x = torch.randn(5, 6, 3, device=device, dtype=torch.double)

    def loss(parameters, sample):
        return functional_call(layer, parameters, (sample,))[0].square().sum()

    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    actual = vmap(grad(loss), in_dims=(None, 1))(parameters, x)
    for i in range(6):
        for name, expected in grad(loss)(parameters, x[:, i]).items():
            torch.testing.assert_close(actual[name][i], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_under_vmap(cell, device):
    """What it casts, and that it takes a mix of dtypes, is as without vmap."""
    plain = inputs_of(cell, 3, 2, 4, torch.float, device)
    args = [t if t is None else torch.stack([t, 2 * t]) for t in plain]
    there = tuple(t if t is None else 0 for t in args)
    with torch.autocast(device, torch.bfloat16):
        for gates in (args[0], args[0].bfloat16()):
            given = [gates, *args[1:]]
            rows = [
                ours(cell, Inputs(*(t if t is None else t[i] for t in given))) for i in range(2)
            ]
            expected = tuple(torch.stack(row) for row in zip(*rows, strict=True))
            in_dims = tuple(None if t is None else 0 for t in there)
            actual = vmap(lambda *tensors: ours(cell, Inputs(*tensors)), in_dims)(*given)
            torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
