"""The LLTM cell at run time: streams, graphs, threads, devices, large sizes."""

from __future__ import annotations

import pytest
import torch
from op_testing import (
    DEVICES,
    bits,
    captured_in_graph,
    cell_inputs,
    needs_gpu,
)

from lltm_jit.functional import lltm_cell
from lltm_jit.ops.lltm import lltm_cell_reference


@pytest.mark.parametrize("device", DEVICES)
def test_same_input_same_bits(device):
    inputs = cell_inputs(65, 33, 129, dtype=torch.float, device=device, requires_grad=True)

    def run():
        new_h, new_cell = lltm_cell(*inputs)
        grads = torch.autograd.grad(new_h.square().sum() + new_cell.sum(), inputs)
        return bits([new_h, new_cell, *grads])

    assert run() == run()


@needs_gpu
def test_batch_past_the_grid_limit():
    inputs = cell_inputs(70_000, 2, 3, dtype=torch.float, device="cuda", requires_grad=True)
    actual, expected = lltm_cell(*inputs), lltm_cell_reference(*inputs)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual[0].sum(), inputs),
        torch.autograd.grad(expected[0].sum() + 0 * expected[1].sum(), inputs),
        rtol=1e-3,
        atol=1e-3,
    )


@needs_gpu
def test_side_stream():
    inputs = cell_inputs(64, 256, 512, dtype=torch.float, device="cuda")
    expected = lltm_cell(*inputs)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        delayed = tuple(t.clone() if t is not None else None for t in inputs)
        delayed[0].zero_()
        torch.cuda._sleep(20_000_000)  # a kernel on another stream would read the zeros
        delayed[0].copy_(inputs[0])
        actual = lltm_cell(*delayed)
    stream.synchronize()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@needs_gpu
def test_cuda_graph():
    inputs = cell_inputs(16, 32, 128, dtype=torch.float, device="cuda", requires_grad=True)

    def step():
        new_h, new_cell = lltm_cell(*inputs)
        return new_h, new_cell, *torch.autograd.grad(new_h.sum() + new_cell.sum(), inputs)

    captured = captured_in_graph(step)
    torch.testing.assert_close(captured, step(), rtol=0, atol=0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensor_on_another_device_than_the_current_one():
    inputs = cell_inputs(dtype=torch.float, device="cuda:1")
    actual = lltm_cell(*inputs)
    assert torch.cuda.current_device() == 0
    assert actual[0].device.index == 1
    torch.testing.assert_close(actual, lltm_cell_reference(*inputs))
