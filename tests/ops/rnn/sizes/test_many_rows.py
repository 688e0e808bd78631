"""Sequences of many rows, of which clusters of blocks have a part of k each, on a GPU of 9.0."""

import itertools

import pytest
import torch
from layer_testing import pair
from op_testing import bits, needs_gpu
from sequence_testing import (
    CELLS,
    Inputs,
    inputs_of,
    names_of_launched,
    ours,
    reference,
    results_and_gradients,
)
from test_sequence import check
from torch import Tensor

from lltm_jit import native
from lltm_jit.functional import recurrent_sequence

pytestmark = [
    needs_gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and native.rnn.sequence_gpu()[0] != 90,
        reason="the kernels are for compute capability 9.0",
    ),
]
# Two tiles of rows, three and four; units that are padded, pairs of blocks that have an odd number
# of eights of them, and weights that are streamed.
SIZES = [(80, 1152), (100, 1150), (129, 1040), (250, 1024), (250, 1500), (66, 2048)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients(cell, size, tmp_path):
    inputs = inputs_of(cell, 4, *size, torch.half, "cuda", control=True)
    assert "many_rows_forward" in names_of_launched(lambda: ours(cell, inputs), tmp_path)
    check(cell, inputs)


# Floats as TF32: two tiles of rows and one, units that are padded, and weights that are streamed;
# fewer units, four tiles and three, and two turns.
FLOAT_SIZES = [
    *itertools.product(CELLS, [(80, 1152), (100, 1150), (128, 1040), (40, 1504), (66, 2048)]),
    *[("lstm", (100, 700)), ("lstm", (250, 1504)), ("gru", (170, 700))],
    *[("lstm", (250, 2048)), ("lstm", (300, 1024))],
]


@pytest.mark.parametrize(("cell", "size"), FLOAT_SIZES, ids=str)
def test_floats_as_tf32(cell, size, tmp_path):
    """With the errors of numbers that are rounded to 11 bits, and the same bits each time."""
    inputs = inputs_of(cell, 4, *size, torch.float, "cuda", control=True)
    exact = results_and_gradients(cell, inputs.to(torch.double), False, reference)
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    all_found: list[list[Tensor]] = []

    def run() -> None:
        all_found.append(results_and_gradients(cell, inputs))

    assert "many_rows_forward" in names_of_launched(run, tmp_path)
    assert bits(all_found[0]) == bits(all_found[1])
    most = 5e-2 if cell == "rnn_relu" else 1.5e-3  # whose derivative jumps
    errors = [
        ((found.double() - right).norm() / right.norm()).item()
        for found, right in zip(all_found[0], exact, strict=True)
        if right.numel() > 0
    ]
    assert max(errors) < most, errors


def with_gradients(cell: str, inputs: Inputs, grad: Tensor) -> list[Tensor]:
    """The output and the gradients of gates and h_0."""
    leaves = [t.detach().requires_grad_() for t in (inputs.gates, inputs.h_0)]
    weights = (inputs.weight_hh, inputs.bias_hh)
    output, *_ = recurrent_sequence(cell, leaves[0], *weights, None, leaves[1], inputs.c_0)
    return [output.detach(), *torch.autograd.grad(output, leaves, grad)]


@pytest.mark.parametrize("power", [-60, -9, 17, 60])
def test_rows_of_floats_have_scales_of_their_own(power):
    """Where all that a row has is times a power of two, so are its results, bit for bit."""
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    inputs = inputs_of("rnn_relu", 4, 80, 1152, torch.float, "cuda")
    grad = torch.randn(4, 80, 1152, device="cuda")
    usual = with_gradients("rnn_relu", inputs, grad)
    scale = torch.ones(80, 1, device="cuda")
    scale[::3] = 2.0**power
    inputs.h_0.mul_(scale)
    inputs.gates.mul_(scale)
    for found, right in zip(with_gradients("rnn_relu", inputs, grad * scale), usual, strict=True):
        assert torch.equal(found, right * scale)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e9])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_rows_of_floats_do_not_know_others(cell, bad):
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    inputs = inputs_of(cell, 4, 100, 1152, torch.float, "cuda")
    grad = torch.randn(4, 100, 1152, device="cuda")
    whole = with_gradients(cell, inputs, grad)
    others = torch.arange(100, device="cuda") != 7
    inputs.gates[:, 7] = bad
    inputs.h_0[7] = bad
    grad[:, 7] = bad
    for found, right in zip(with_gradients(cell, inputs, grad), whole, strict=True):
        assert bits([found.movedim(-2, 0)[others]]) == bits([right.movedim(-2, 0)[others]])


@pytest.mark.parametrize("size", [(80, 1152), (256, 1024)], ids=str)
def test_a_refused_launch_takes_the_next_plan(size):
    native.rnn.limit_sequence_blocks(1 << 30, 1)
    try:
        check("lstm", inputs_of("lstm", 4, *size, torch.half, "cuda"))
    finally:
        native.rnn.limit_sequence_blocks(1 << 30, 1 << 30)


def test_both_directions_run_one_after_the_other():
    layers = pair("LSTM", 64, 1152, bidirectional=True, device="cuda", dtype=torch.half)
    x = torch.randn(5, 80, 64, device="cuda", dtype=torch.half)
    torch.testing.assert_close(*(layer(x)[0] for layer in layers), atol=2e-3, rtol=0)


def test_bfloat16_in_reverse_without_states():
    check("lstm", inputs_of("lstm", 4, 80, 1152, torch.bfloat16, "cuda", state=False), reverse=True)


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
