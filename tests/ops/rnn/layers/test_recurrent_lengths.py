"""Layers over sequences of different lengths: as lengths, and packed."""

import math
from functools import partial

import pytest
import torch
from layer_testing import (
    LAYERS,
    THEIRS,
    as_list,
    assert_alike,
    derivatives,
    pair,
    states_of,
    tensors,
    with_gradients,
)
from op_testing import needs_gpu
from sequence_testing import peak_of
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

import lltm_jit
from lltm_jit.ops.rnn.recurrent_layer.parts import parts_of


def test_lengths_stand_in_for_packing(kind, bidirectional, device):
    layer = LAYERS[kind](5, 7, 2, bidirectional=bidirectional, dtype=torch.double, device=device)
    lengths, state = [4, 1, 6, 3], states_of(layer, 4, device=device)
    x = torch.randn(6, 4, 5, dtype=torch.double, device=device, requires_grad=True)

    def packed():
        output, last = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), state)
        return pad_packed_sequence(output, total_length=6)[0], last

    leaves = [x, *layer.parameters()]
    for given in (lengths, torch.tensor(lengths)):
        both = [tensors(results) for results in (layer(x, state, lengths=given), packed())]
        torch.testing.assert_close(*both)
        torch.testing.assert_close(*(derivatives(results, leaves) for results in both))


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.long], ids=str)
def test_lengths_on_a_gpu_beyond_the_steps_are_all_of_them(dtype):
    """To look into them would wait for it; of any type of whole numbers."""
    layer = lltm_jit.LSTM(5, 7, bidirectional=True, device="cuda")
    x = torch.randn(4, 3, 5, device="cuda")
    actual = layer(x, lengths=torch.tensor([9, 0, 3], dtype=dtype, device="cuda"))
    torch.testing.assert_close(actual, layer(x, lengths=[4, 0, 3]))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_behind_the_ends_is_not_read(value, kind, device):
    layer = LAYERS[kind](5, 7, 2, bidirectional=True, dtype=torch.double, device=device)
    lengths = [4, 1, 6, 0]
    x = torch.randn(6, 4, 5, dtype=torch.double, device=device)
    state, reset = states_of(layer, 4, device=device), torch.rand(6, 4, device=device) < 0.3
    found = []
    for padding in (0.0, value):
        given = x.clone()
        for row, length in enumerate(lengths):
            given[length:, row] = padding
        leaf, named = given.requires_grad_(), {"lengths": lengths, "reset": reset}
        found.append(with_gradients(layer, leaf, state, leaves=[leaf], orders=2, **named))
    assert all(tensor.isfinite().all() for tensor in found[1])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(4, 3), (4,), (3, 4)], ids=["batch", "single", "batch_first"])
def test_a_reset_mask_may_have_one_feature(shape):
    """As replay buffers hold it."""
    layer = lltm_jit.GRU(5, 7, batch_first=shape == (3, 4))
    x, reset = torch.randn(*shape, 5), torch.rand(shape) < 0.5
    found = layer(x, reset=reset.unsqueeze(-1))
    torch.testing.assert_close(found, layer(x, reset=reset), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"lengths": [1, 2]}, r"lengths to have shape \[batch\] = \[3\], but got \[2\]"),
        ({"lengths": [1, 5, 2]}, "lengths from 0 to 4, the number of steps, but got 5"),
        ({"lengths": [1, -1, 2]}, "lengths from 0 to 4, the number of steps, but got -1"),
        ({"lengths": torch.tensor([1, 99, 2])}, "lengths from 0 to 4, .* but got 99"),
        ({"lengths": torch.tensor([1, 2, -3])}, "lengths from 0 to 4, .* but got -3"),
        ({"lengths": torch.ones(3)}, "lengths to be whole numbers, but got dtype torch.float32"),
        ({"reset": torch.zeros(4, 3, 5)}, r"reset .* \[4, 3\], but got \[4, 3, 5\]"),
        ({"reset": torch.zeros(4, 3).to("meta")}, r"reset .* of input \(cpu\), but got meta"),
    ],
    ids=str,
)
def test_errors_of_lengths_and_resets(named, message):
    with pytest.raises(RuntimeError, match=rf"^LSTM\(\): expected {message}"):
        lltm_jit.LSTM(5, 7)(torch.zeros(4, 3, 5), **named)


def test_a_packed_sequence_takes_no_lengths():
    packed = pack_sequence([torch.zeros(4, 5)])
    with pytest.raises(ValueError, match="a packed input takes neither lengths nor reset"):
        lltm_jit.LSTM(5, 7)(packed, lengths=[4])


# Parts that are padded, sequences much longer than the others, and all of one length.
LENGTHS = {
    "one part": [9, 8, 8, 7, 6],
    "a long one": [40, 3, 3, 2, 1, 1],
    "falling": [20, 12, 9, 5, 2, 1, 1, 1],
    "equal": [4, 4, 4],
    "two sets": [11, 11, 2, 2, 2],
}


def test_how_many_parts_there_are():
    packed = [pack_sequence([torch.zeros(n) for n in each]) for each in LENGTHS.values()]
    assert [len(parts_of(each.batch_sizes.tolist())) for each in packed] == [1, 2, 3, 1, 2]


@pytest.mark.thinned
@pytest.mark.parametrize("checkpoint", [0, 2])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", THEIRS)
def test_packed_in_parts_is_what_torchs_layers_give(kind, lengths, checkpoint, device):
    layers = pair(kind, 5, 7, 2, bidirectional=True, dtype=torch.double, device=device)
    layers[0].checkpoint = checkpoint
    options = {"dtype": torch.double, "device": device, "requires_grad": True}
    order = torch.randperm(len(LENGTHS[lengths])).tolist()
    rows = [torch.randn(LENGTHS[lengths][i], 5, **options) for i in order]
    packed = pack_sequence(rows, enforce_sorted=False)
    for state in (None, states_of(layers[0], len(rows), **options)):
        facts = [layer(packed, state)[0][1:] for layer in layers]
        torch.testing.assert_close(*facts, rtol=0, atol=0)
        assert_alike(layers, packed, state, leaves=[*rows, *as_list(state)])


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_a_long_sum_keeps_its_bits_between_parts(dtype, device):
    """The LLTM's cell, which is wider than the state that goes from part to part."""
    layer = lltm_jit.LLTM(1, 16, dtype=dtype, device=device)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[:16], layer.bias_ih_l0[32:] = 3.0, 0.1
    rows = [torch.zeros(n, 1, dtype=dtype, device=device) for n in (2000, 1500, 4, 3, 3, 3, 3, 3)]
    c_0 = torch.zeros(1, 8, 16, device=device)
    _, (_, c_n) = layer(pack_sequence(rows), (c_0.to(dtype), c_0))
    step = torch.tensor(3.0).sigmoid() * layer.bias_ih_l0[-1].cpu().float()
    torch.testing.assert_close(c_n[0, 0].cpu(), (2000 * step).expand(16), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["LLTM", "LSTM", "SLSTM"])
def test_states_beside_h_are_not_rounded_between_parts(kind, dtype):
    """They have the bits of a single part, on a CPU, whose kernels do not depend on the rows."""
    layer = LAYERS[kind](5, 7, 2, bidirectional=True, dtype=dtype)
    lengths = LENGTHS["falling"]
    rows = [torch.randn(n, 5).to(dtype) for n in lengths]
    h_0, *cells = states_of(layer, len(rows), dtype=dtype)
    for state in (None, (h_0, *cells), (h_0, *(cell.float() for cell in cells))):
        expected = layer(pad_sequence(rows), state, lengths=lengths)[1]
        torch.testing.assert_close(layer(pack_sequence(rows), state)[1], expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", THEIRS)
def test_a_long_sequence_among_short_ones_takes_little_memory(kind):
    sizes = pack_sequence([torch.zeros(n) for n in (400, *[4] * 31)]).batch_sizes
    packed = PackedSequence(torch.randn(int(sizes.sum()), 32, requires_grad=True), sizes)
    layers = pair(kind, 32, 32, bidirectional=True)
    ours, theirs = (peak_of(partial(with_gradients, layer, packed)) for layer in layers)
    assert 0 < ours <= 1.5 * theirs
