"""Layers with heads and in both directions, whose recurrences run in one call."""

import pytest
import torch
from layer_testing import LAYERS, THEIRS, states_of, tensors, with_gradients
from op_testing import assert_threads_change_no_bit, bits
from torch import nn
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.rnn import pack_padded_sequence

from lltm_jit import LSTM, native
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer


def load_dense_weights(layer: nn.Module, of_torch: nn.Module) -> None:
    """Of torch's layer, with one of ours' heads as blocks on the diagonal."""
    state = layer.state_dict()
    for name, weight in state.items():
        if weight.dim() == 3:
            blocks = weight.unflatten(1, (layer.cell.gates, -1)).unbind(1)
            state[name] = torch.cat([torch.block_diag(*each) for each in blocks])
    of_torch.load_state_dict(state)


@pytest.mark.parametrize("kind", THEIRS)
def test_layers_with_heads_are_torchs(kind, bidirectional, device):
    options = {"bidirectional": bidirectional, "dtype": torch.double, "device": device}
    ours, theirs = LAYERS[kind](5, 12, 2, num_heads=3, **options), THEIRS[kind](5, 12, 2, **options)
    load_dense_weights(ours, theirs)
    x = torch.randn(6, 4, 5, dtype=torch.double, device=device)
    packed = pack_padded_sequence(x, torch.tensor([6, 5, 2, 1]))
    for args in ((x,), (x, states_of(ours, 4, device=device)), (packed,)):
        torch.testing.assert_close(*(tensors(layer(*args)) for layer in (ours, theirs)))


def test_directions_of_many_rows_take_a_core_each(cell, monkeypatch):
    """In one call on a CPU, with the results of one call for each, whatever the threads."""
    layer = LAYERS[cell.upper()](3, 20, bidirectional=True)
    few, many = torch.randn(63, 4, 3), torch.randn(64, 4, 3)
    plainly = [bits(with_gradients(layer, x)) for x in (few, many)]
    # The other path, of calls that are not ordinary.
    monkeypatch.setattr("lltm_jit.ops.rnn.recurrent_layer.plain.plainly", lambda *_: None)
    counts, run = [], RecurrentLayer._recurrences

    def counted(layer, parts, suffixes, *args):
        counts.append(len(suffixes))
        return run(layer, parts, suffixes, *args)

    monkeypatch.setattr(RecurrentLayer, "_recurrences", counted)
    layer(few)
    assert counts == [1, 1]
    layer(many)
    assert counts == [1, 1, 2]
    assert plainly == [bits(with_gradients(layer, x)) for x in (few, many)]
    assert_threads_change_no_bit(lambda: with_gradients(layer, many))
    together = with_gradients(layer, many)
    monkeypatch.setattr(RecurrentLayer, "_together", lambda *_: False)
    apart = with_gradients(layer, many)
    assert bits(together[:2]) == bits(apart[:2])
    torch.testing.assert_close(together, apart)


class Counted(nn.Module):
    """A parametrization that counts how often it is asked for."""

    count = 0

    def forward(self, weight):
        self.count += 1
        return weight


def test_each_weight_is_looked_up_once():
    """It may be computed each time, as spectral_norm() does."""
    layer = LSTM(3, 4, 3, dropout=0.5)
    register_parametrization(layer, "weight_hh_l0", counted := Counted())
    counted.count = 0
    layer(torch.randn(5, 2, 3))
    assert counted.count == 1


@pytest.mark.thinned
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("hidden_size", [5, 8])
def test_padded_operands(kind, hidden_size, training):
    layer = LAYERS[kind](3, hidden_size, bidirectional=True)
    x = torch.randn(64, 8, 3)
    weights = [getattr(layer, name) for name in layer._flat_weights_names]
    with torch.set_grad_enabled(training):
        output, *_ = native.rnn.recurrent_layers(
            x, weights, 1, 2, (), layer.cell.name, True, False, None
        )
        expected = layer(x)[0]
    torch.testing.assert_close(output, expected)
    if training:
        grad = torch.randn(output.shape)
        found = [torch.autograd.grad(y, weights, grad) for y in (output, expected)]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_padding_hides_no_wrong_width(training):
    layer = LSTM(8, 7)
    weights = [torch.randn(28, 5), *(getattr(layer, n) for n in layer._flat_weights_names[1:])]
    with torch.set_grad_enabled(training), pytest.raises(RuntimeError, match=r"28, 8.*28, 5"):
        native.rnn.recurrent_layers(
            torch.randn(3, 2, 8), weights, 1, 1, (), "lstm", True, False, None
        )


@pytest.mark.parametrize("kind", ["weight_ih", "weight_hh", "bias_hh"])
@pytest.mark.parametrize("steps", [4, 200])
def test_directions_of_two_dtypes_are_refused(kind, steps):
    layer = LSTM(3, 8, bidirectional=True)
    name = f"{kind}_l0_reverse"
    setattr(layer, name, nn.Parameter(getattr(layer, name).half()))
    for lengths in (None, [steps, steps - 1]):
        with pytest.raises(RuntimeError, match=f"{name}.* Half|{name}.*float16"):
            layer(torch.randn(steps, 2, 3), lengths=lengths)


@pytest.mark.thinned
@pytest.mark.parametrize("how", [{"bidirectional": True}, {"num_layers": 3}], ids=str)
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("hidden_size", [7, 8])
def test_gradients_add_up(kind, hidden_size, lengths, how, device):
    """Those of both biases are equal where the cell adds its gates, but each has its own memory."""
    layer = LAYERS[kind](3, hidden_size, device=device, **how)
    x = torch.randn(64, 8, 3, device=device)
    given = pack_padded_sequence(x, [64] * 8) if lengths else x
    found = []
    for _ in range(2):
        tensors(layer(given))[0].square().sum().backward()
        found.append([weight.grad.clone() for weight in layer.parameters()])
    once, twice = found
    torch.testing.assert_close(twice, [2 * each for each in once], rtol=1e-3, atol=1e-3)
