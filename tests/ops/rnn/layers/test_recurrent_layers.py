"""The layers against torch's own, and what they have beyond them."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from op_testing import ACTIVATIONS, DEVICES, assert_accurate, needs_gpu
from sequence_testing import ALL_LAYERS, ALL_THEIRS, LAYERS, THEIRS, layer_reference, tensors
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import lltm_jit
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer


def states_of(layer: RecurrentLayer, batch_size: int, **kwargs) -> torch.Tensor | tuple:
    size = (layer.num_layers * layer._directions, batch_size, layer.hidden_size)
    states = tuple(
        torch.randn(size, dtype=torch.double, **kwargs) for _ in range(layer.cell.states)
    )
    return states if len(states) > 1 else states[0]


def assert_same(ours, theirs, our_layer, their_layer, *inputs) -> None:
    """Results, and the gradients of inputs and parameters."""
    ours, theirs = tensors(ours), tensors(theirs)
    torch.testing.assert_close(ours, theirs)
    weights = [torch.randn_like(tensor) for tensor in theirs]
    found = []
    for results, layer in ((ours, our_layer), (theirs, their_layer)):
        loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
        leaves = [*inputs, *layer.parameters()]
        found.append(torch.autograd.grad(loss, leaves, retain_graph=True))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("device", DEVICES)
@given(data=st.data())
def test_torchs_own_layers_give_the_same(device, data):
    """300 random configurations, by both devices' and both layers' share."""
    kind = data.draw(st.sampled_from([*ALL_THEIRS]))
    sizes = {
        "input_size": data.draw(st.integers(1, 9)),
        "hidden_size": data.draw(st.integers(1, 40)),
        "num_layers": data.draw(st.integers(1, 3)),
    }
    flags = {
        name: data.draw(st.booleans(), name) for name in ("bias", "batch_first", "bidirectional")
    }
    steps, batch_size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 20))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    theirs = ALL_THEIRS[kind](**sizes, **flags, dtype=torch.double, device=device)
    ours = ALL_LAYERS[kind](**sizes, **flags, dtype=torch.double, device=device)
    ours.load_state_dict(theirs.state_dict())
    with_state = data.draw(st.booleans(), "state")
    state = states_of(ours, batch_size, device=device, requires_grad=True) if with_state else None
    form = data.draw(st.sampled_from(["padded", "packed", "unbatched"]))
    x = torch.randn(batch_size, steps, sizes["input_size"], dtype=torch.double, device=device)
    x = (x if flags["batch_first"] else x.transpose(0, 1)).detach().requires_grad_()
    leaves = [x] if state is None else [x, *([state] if torch.is_tensor(state) else state)]
    if form == "unbatched":
        whole = x.select(0 if flags["batch_first"] else 1, 0)
        part = state
        if state is not None:
            # cuDNN wants it whole.
            part = (
                state[:, 0].contiguous()
                if torch.is_tensor(state)
                else tuple(s[:, 0].contiguous() for s in state)
            )
        assert_same(ours(whole, part), theirs(whole, part), ours, theirs, *leaves)
        return
    given_input = x
    if form == "packed":
        lengths = torch.randint(1, steps + 1, (batch_size,))
        given_input = pack_padded_sequence(
            x, lengths, batch_first=flags["batch_first"], enforce_sorted=False
        )
    assert_same(ours(given_input, state), theirs(given_input, state), ours, theirs, *leaves)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_layer_is_its_equations(kind, batch_first, device):
    """Those in its docstring, with a batch and without one."""
    options = {"batch_first": batch_first, "bidirectional": True, "device": device}
    layer = LAYERS[kind](5, 7, 2, dtype=torch.double, **options)
    x = torch.randn(4, 2, 5, dtype=torch.double, device=device)
    state = states_of(layer, 2, device=device)
    single = torch.is_tensor(state)
    expected, last = layer_reference(layer, x, [state] if single else state)
    output, *ends = tensors(layer(x.transpose(0, 1) if batch_first else x, state))
    output = output.transpose(0, 1) if batch_first else output
    torch.testing.assert_close([output, *ends], [expected, *last])
    found = tensors(layer(x[:, 0], state[:, 0] if single else tuple(s[:, 0] for s in state)))
    torch.testing.assert_close(found, [tensor[:, 0] for tensor in (expected, *last)])


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
@pytest.mark.parametrize("lengths", [None, [7, 9]])
def test_a_reset_cuts_the_sequence(kind, bidirectional, lengths):
    """Each piece is computed as a sequence of its own."""
    layer = LAYERS[kind](5, 7, bidirectional=bidirectional, dtype=torch.double)
    x = torch.randn(9, 2, 5, dtype=torch.double, requires_grad=True)
    reset = torch.zeros(9, 2, dtype=torch.bool)
    reset[3, 0] = reset[4, 0] = reset[6, 1] = reset[8, 0] = True
    output, _ = layer(x, reset=reset, lengths=lengths)
    for row in range(2):
        end = 9 if lengths is None else lengths[row]
        cuts = [0, *(t for t in range(1, end) if reset[t, row]), end]
        pieces = [layer(x[a:b, row])[0] for a, b in itertools.pairwise(cuts)]
        torch.testing.assert_close(output[:end, row], torch.cat(pieces))
        assert (output[end:, row] == 0).all()


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.double, torch.half], ids=str)
@pytest.mark.parametrize("steps", [1, 4, 100])
def test_checkpoints_change_nothing(kind, steps, dtype, device):
    kept = {"bidirectional": True, "dtype": dtype, "device": device}
    plain = LAYERS[kind](5, 7, 2, **kept)
    pieces = LAYERS[kind](5, 7, 2, checkpoint=steps, **kept)
    pieces.load_state_dict(plain.state_dict())
    x = torch.randn(9, 3, 5, dtype=dtype, device=device, requires_grad=True)
    reset = torch.rand(9, 3, device=device) < 0.3
    found = []
    for layer, leaf in ((pieces, x), (copy.deepcopy(plain).double(), x.double()), (plain, x)):
        results = tensors(layer(leaf, reset=reset, lengths=[9, 4, 6]))
        loss = sum((r * torch.arange(r.size(-1)).to(r) / 4).sum() for r in results)
        found.append([*results, *torch.autograd.grad(loss, [leaf, *layer.parameters()])])
    for number, (ours, exact, usual) in enumerate(zip(*found, strict=True)):
        # The pieces' gradients of parameters are added in their dtype.
        sums = math.ceil(9 / steps) if number > len(results) else 1
        assert_accurate(ours, exact, usual, ulps=sums, sums=True, parts=ACTIVATIONS)


def test_checkpoints_take_less_memory():
    """Tensors that autograd keeps, in bytes."""

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
    torch.manual_seed(0)
    layer = LAYERS[kind](5, 7, 2, dropout=1.0)
    x = torch.randn(4, 3, 5)
    top = LAYERS[kind](7, 7)
    top.load_state_dict(
        {
            name.replace("l1", "l0"): value
            for name, value in layer.state_dict().items()
            if name.endswith("l1")
        }
    )
    torch.testing.assert_close(layer(x)[0], top(torch.zeros(4, 3, 7))[0])
    layer.eval()
    assert not torch.equal(layer(x)[0], top(torch.zeros(4, 3, 7))[0])


def test_how_it_prints():
    layer = lltm_jit.GRU(5, 7, num_layers=2, batch_first=True, dropout=0.5, checkpoint=8)
    expected = "GRU(5, 7, num_layers=2, batch_first=True, dropout=0.5, checkpoint=8)"
    assert str(layer) == expected
    assert str(lltm_jit.LSTM(3, 12, num_heads=3)) == "LSTM(3, 12, num_heads=3)"
    assert str(lltm_jit.LSTM(5, 7)) == str(nn.LSTM(5, 7))
