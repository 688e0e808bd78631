"""Recurrent operators by their formulas: on a device that has no kernel of ours."""

from __future__ import annotations

import pytest
import test_sequence
import test_sequence_compile
import torch
from op_testing import DTYPES
from sequence_testing import LAYERS, inputs_of

from lltm_jit import native


@pytest.fixture(autouse=True)
def _without_kernels():
    native.rnn.register_ops(kernels=False)
    yield
    native.rnn.register_ops()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients(cell, dtype):
    test_sequence.check(cell, inputs_of(cell, 4, 3, 7, dtype))


def test_resets_and_lengths(cell, reverse):
    test_sequence.test_resets_and_lengths(cell, reverse, torch.half, "cpu")


@pytest.mark.parametrize("shape", [(4, 0, 8), (4, 3, 0)], ids=str)
def test_nothing_to_compute(cell, shape):
    test_sequence.test_nothing_to_compute(cell, shape, "cpu")


def test_compiled_layers():
    test_sequence_compile.test_compile_once_for_every_batch_and_length("GRU", "cpu")


def test_both_directions_of_a_layer(kind):
    """The formula walks backwards as it is told, and not over a sequence that is turned round."""
    layer = LAYERS[kind](5, 7, bidirectional=True)
    other = LAYERS[kind](5, 7, bidirectional=True)
    pairs = [(n, n + "_reverse") for n in layer.state_dict() if not n.endswith("_reverse")]
    state = layer.state_dict()
    other.load_state_dict({a: state[b] for p in pairs for a, b in (p, p[::-1])})
    x = torch.randn(4, 3, 5)
    forward, backward = layer(x)[0].split(7, 2)
    turned = torch.cat([backward, forward], 2).flip(0)
    torch.testing.assert_close(other(x.flip(0))[0], turned)
