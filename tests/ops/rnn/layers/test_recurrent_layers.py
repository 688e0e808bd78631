"""The layers against torch's own, and what they have beyond them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_testing import (
    ALL_THEIRS,
    LAYERS,
    THEIRS,
    as_list,
    as_state,
    assert_alike,
    derivatives,
    layer_reference,
    like,
    pair,
    states_of,
    tensors,
)
from op_testing import ACTIVATIONS, DEVICES, needs_gpu
from sequence_testing import all_accurate
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import lltm_jit
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer

FLAGS = dict.fromkeys(("bias", "batch_first", "bidirectional"), st.booleans())


@pytest.mark.parametrize("device", DEVICES)
@given(
    kind=st.sampled_from([*ALL_THEIRS]),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 3)),
    flags=st.fixed_dictionaries(FLAGS),
    steps=st.integers(1, 12),
    rows=st.integers(1, 20),
    with_state=st.booleans(),
    form=st.sampled_from(["padded", "packed", "unbatched"]),
    seed=st.integers(0, 1000),
)
def test_torchs_own_layers_give_the_same(
    kind, sizes, flags, steps, rows, with_state, form, seed, device
):
    torch.manual_seed(seed)
    options, first = {"dtype": torch.double, "device": device}, flags["batch_first"]
    layers = pair(kind, *sizes, **flags, **options)
    state = states_of(layers[0], rows, requires_grad=True, **options) if with_state else None
    x = torch.randn(*((rows, steps) if first else (steps, rows)), sizes[0], **options)
    leaves = [x.requires_grad_(), *as_list(state)]
    if form == "unbatched":
        x = x.select(0 if first else 1, 0)
        if with_state:  # which cuDNN wants whole
            state = as_state([s[:, 0].contiguous() for s in as_list(state)])
    elif form == "packed":
        lengths = torch.randint(1, steps + 1, (rows,))
        x = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
    assert_alike(layers, x, state, leaves=leaves)


@pytest.mark.parametrize("how", ["plainly", "together", "in pieces"])
@pytest.mark.parametrize("form", ["batch", "batch first", "lengths and resets"])
def test_a_layer_is_its_equations(kind, form, how, path, monkeypatch):
    """Those in its docstring: results, and derivatives of two orders."""
    options = {"dtype": torch.double, "device": path}
    sizes = {"num_layers": 2, "bidirectional": True, "batch_first": form == "batch first"}
    layer = LAYERS[kind](2, 3, **sizes, checkpoint=2 * (how == "in pieces"), **options)
    if how == "together":  # as on a GPU, where both directions run in one call
        monkeypatch.setattr(RecurrentLayer, "_together", lambda *_: True)
    x, named = torch.randn(5, 3, 2, **options, requires_grad=True), {}
    state = states_of(layer, 3, **options, requires_grad=True)
    if form == "lengths and resets":
        named = {"lengths": [5, 0, 3], "reset": torch.rand(5, 3, device=path) < 0.3}
    output, *ends = tensors(layer(x.transpose(0, 1) if layer.batch_first else x, state, **named))
    found = [output.transpose(0, 1) if layer.batch_first else output, *ends]
    expected, last = layer_reference(layer, x, as_list(state), **named)
    torch.testing.assert_close(found, [expected, *last])
    leaves = [x, *as_list(state), *layer.parameters()]
    both = (derivatives(each, leaves, orders=2) for each in (found, [expected, *last]))
    torch.testing.assert_close(*both)
    if not named:
        single = tensors(layer(x[:, 0], as_state([s[:, 0] for s in as_list(state)])))
        torch.testing.assert_close(single, [tensor[:, 0] for tensor in (expected, *last)])


@pytest.mark.parametrize("prefix", ["", "cell."])
@pytest.mark.parametrize("shape", [(21,), (1, 21)], ids=str)
def test_lltm_loads_a_cell(prefix, shape):
    cell, layer = lltm_jit.LLTMCell(5, 7), lltm_jit.LLTM(5, 7)
    saved = {prefix + "weights": cell.weights.detach(), prefix + "bias": cell.bias.view(shape)}
    layer.load_state_dict(saved)
    x, state = torch.randn(4, 3, 5), None
    outputs = []
    for step in x:
        state = cell(step, state)
        outputs.append(state[0])
    output, (h, c) = layer(x)
    torch.testing.assert_close(output, torch.stack(outputs))
    torch.testing.assert_close((h[0], c[0]), state)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.double, torch.half], ids=str)
@pytest.mark.parametrize("steps", [1, 4, 100])
def test_checkpoints_change_nothing(kind, steps, dtype, device):
    options = {"bidirectional": True, "dtype": dtype, "device": device}
    plain = LAYERS[kind](5, 7, 2, **options)
    pieces = like(plain, 5, 7, 2, checkpoint=steps, **options)
    wide = like(plain, 5, 7, 2, **options | {"dtype": torch.double})
    x = torch.randn(9, 3, 5, dtype=dtype, device=device, requires_grad=True)
    reset = torch.rand(9, 3, device=device) < 0.3
    found = []
    for layer, leaf in ((pieces, x), (wide, x.double()), (plain, x)):
        results = tensors(layer(leaf, reset=reset, lengths=[9, 4, 6]))
        loss = sum((r * torch.arange(r.size(-1)).to(r) / 4).sum() for r in results)
        found.append([results, torch.autograd.grad(loss, [leaf, *layer.parameters()])])
    results, gradients = zip(*found, strict=True)
    all_accurate(*results, sums=True, parts=ACTIVATIONS)
    # The pieces' gradients of parameters are added in their dtype.
    all_accurate(*gradients, ulps=math.ceil(9 / steps), sums=True, parts=ACTIVATIONS)


def test_checkpoints_take_less_memory():

    def kept(checkpoint: int) -> int:
        layer, seen = lltm_jit.LSTM(4, 64, checkpoint=checkpoint), {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = layer(torch.randn(256, 4, 4, requires_grad=True))
        assert result[0].requires_grad
        return sum(seen.values())

    assert kept(16) < kept(0) / 4


@needs_gpu
@pytest.mark.parametrize("kind", THEIRS)
def test_training_takes_no_more_memory_than_torchs(kind):
    x = torch.randn(128, 32, 384, dtype=torch.half, device="cuda", requires_grad=True)
    peaks = []
    for layers in (LAYERS, THEIRS):
        layer = layers[kind](384, 384, device="cuda", dtype=torch.half)
        for _ in range(2):  # the library keeps some memory from its first call on
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            torch.autograd.grad(layer(x)[0].sum(), [x, *layer.parameters()])
            peak = torch.cuda.max_memory_allocated() - before
        peaks.append(peak)
    assert 0 < peaks[0] <= peaks[1]


def test_dropout_is_between_the_layers(kind):
    layer = LAYERS[kind](5, 7, 2, dropout=1.0)
    x = torch.randn(4, 3, 5)
    top, state = LAYERS[kind](7, 7), layer.state_dict()
    top.load_state_dict({name: state[name.replace("l0", "l1")] for name in top.state_dict()})
    torch.testing.assert_close(layer(x)[0], top(torch.zeros(4, 3, 7))[0])
    layer.eval()
    assert not torch.equal(layer(x)[0], top(torch.zeros(4, 3, 7))[0])


def test_how_it_prints():
    layer = lltm_jit.GRU(5, 7, num_layers=2, batch_first=True, dropout=0.5, checkpoint=8)
    assert str(layer) == "GRU(5, 7, num_layers=2, batch_first=True, dropout=0.5, checkpoint=8)"
    assert str(lltm_jit.LSTM(3, 12, num_heads=3)) == "LSTM(3, 12, num_heads=3)"
    assert str(lltm_jit.LSTM(5, 7)) == str(nn.LSTM(5, 7))
