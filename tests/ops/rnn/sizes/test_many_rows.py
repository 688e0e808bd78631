"""Sequences of many rows, of which clusters of blocks have a part of k each, on a GPU of 9.0."""

from __future__ import annotations

import pytest
import torch
from op_testing import bits, needs_gpu
from sequence_testing import CELLS, inputs_of, launched, results_and_gradients
from test_sequence import check

import lltm_jit
from lltm_jit import native
from lltm_jit.functional import recurrent_sequence

pytestmark = [
    needs_gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
        reason="the kernels are for compute capability 9.0",
    ),
]
# Two tiles of rows, three and four; units that are padded, and weights that are streamed.
SIZES = [(80, 1152), (100, 1150), (129, 1040), (250, 1024), (66, 2048)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_values_and_gradients(cell, size, tmp_path):
    inputs = inputs_of(cell, 4, *size, torch.half, "cuda", control=True)
    names = {
        kernel["name"] for kernel in launched(lambda: recurrent_sequence(cell, *inputs), tmp_path)
    }
    assert "many_rows_forward" in names
    check(cell, inputs)


@pytest.mark.parametrize("size", [(80, 1152), (256, 1024)], ids=str)
def test_a_refused_launch_takes_the_next_plan(size):
    native.rnn.limit_sequence_blocks(1 << 30, 1)
    try:
        check("lstm", inputs_of("lstm", 3, *size, torch.half, "cuda"))
    finally:
        native.rnn.limit_sequence_blocks(1 << 30, 1 << 30)


def test_both_directions_run_one_after_the_other():
    torch.manual_seed(0)
    ours = lltm_jit.LSTM(64, 1152, bidirectional=True, device="cuda", dtype=torch.half)
    both = torch.nn.LSTM(64, 1152, bidirectional=True, device="cuda", dtype=torch.half)
    both.load_state_dict(ours.state_dict())
    x = torch.randn(5, 80, 64, device="cuda", dtype=torch.half)
    torch.testing.assert_close(ours(x)[0], both(x)[0], atol=2e-3, rtol=0)


def test_bfloat16_in_reverse_without_states():
    check("lstm", inputs_of("lstm", 3, 80, 1152, torch.bfloat16, "cuda", state=False), reverse=True)


def test_streams_do_not_wait_for_each_other():
    """Kernels whose blocks wait for all others, of two streams, run one after the other."""
    inputs = inputs_of("lstm", 40, 80, 1152, torch.half, "cuda")
    expected = bits(results_and_gradients("lstm", inputs))
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for _ in range(4):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(results_and_gradients("lstm", inputs))
    torch.cuda.synchronize()
    for each in found:
        assert bits(each) == expected
