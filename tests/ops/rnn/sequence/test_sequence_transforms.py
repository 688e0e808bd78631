"""Whole sequences and their layers under torch.func, on tensors without data, and in modes."""

import copy

import pytest
import torch
from layer_testing import LAYERS, as_list, derivatives
from sequence_testing import Inputs, controls, inputs_of, ours
from subclasses import Logged, Recorder, Wrapped
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map_only

import lltm_jit

pytestmark = pytest.mark.usefixtures("rules_for_vmap")


def test_vmap_over_the_control(cell, reverse, device):
    """Alone, and with all others; test_every_operator.py has those without it."""
    inputs = inputs_of(cell, 4, 2, 3, device=device, control=True).requires_grad()
    more = torch.stack([controls(4, 2, reverse).to(device) for _ in range(3)])
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
        torch.testing.assert_close(actual, expected)
        found = [derivatives(r, inputs.leaves(), retain_graph=True) for r in (actual, expected)]
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
    options = {"bidirectional": True, "device": device, "dtype": torch.double}
    layers = [LAYERS[kind](3, 4, 2, **options) for _ in range(3)]
    x = torch.randn(5, 2, 3, device=device, dtype=torch.double)
    named = {"lengths": [5, 3], "reset": torch.rand(5, 2, device=device) < 0.3}
    skeleton = copy.deepcopy(layers[0]).to("meta")
    parameters, buffers = stack_module_state(layers)

    def member(parameters, buffers, x):
        output, state = functional_call(skeleton, (parameters, buffers), (x,), named)
        return output, as_list(state)[-1]

    found = vmap(member, in_dims=(0, 0, None))(parameters, buffers, x)
    gradients = derivatives(found, [*parameters.values()])
    for i, layer in enumerate(layers):
        expected = member(dict(layer.named_parameters()), {}, x)
        expected = [*expected, *derivatives(expected, [*layer.parameters()])]
        torch.testing.assert_close([each[i] for each in (*found, *gradients)], expected)


@pytest.mark.parametrize("cell", ["lltm", "lstm", "slstm"])
def test_a_float_cell_of_half_calls_on_tensors_without_data(cell, reverse, device):
    """test_every_operator.py has cells of the same dtype."""
    inputs = inputs_of(cell, dtype=torch.half, device=device, control=True)
    inputs = inputs._replace(c_0=inputs.c_0.float())
    facts = []
    for given in (inputs, Inputs(*(t if t is None else t.to("meta") for t in inputs))):
        leaves = given.requires_grad()
        results = ours(cell, leaves, reverse)
        found = [*results, *derivatives(results, leaves.leaves())]
        facts.append([(t.shape, t.dtype, t.stride()) for t in found])
    assert {tensor.device.type for tensor in found} == {"meta"}
    assert facts[0] == facts[1]


@pytest.mark.parametrize("subclass", [lambda t: t.as_subclass(Logged), Wrapped])
def test_a_subclass_as_the_control(subclass):
    """test_every_tool.py has those of the other arguments."""
    given = inputs_of("lstm", control=True)
    results = ours("lstm", given._replace(control=subclass(given.control)))
    assert {type(result) for result in results} <= {Logged, Wrapped}
    found = tree_map_only(Wrapped, lambda t: t.inner, list(results))
    found = [tensor.as_subclass(Tensor) for tensor in found]
    torch.testing.assert_close(found, [*ours("lstm", given)], rtol=0, atol=0)


def test_mode_that_overrides_functions(device):
    layer = lltm_jit.LSTM(5, 7, 2, device=device)
    x = torch.randn(4, 3, 5, device=device)
    with Recorder() as recorder:
        output, _ = layer(x)
    calls = [call for call in recorder.calls if "recurrent" in call]
    assert calls == ["lltm_jit.recurrent_sequence"] * 2
    error = 0 if device == "cpu" else 1e-6  # a GPU's products of padded rows may differ
    torch.testing.assert_close(output, layer(x)[0], rtol=0, atol=error)
