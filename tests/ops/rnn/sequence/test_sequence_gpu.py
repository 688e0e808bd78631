"""Whole sequences on a GPU: streams, graphs and devices."""

from __future__ import annotations

import copy

import pytest
import torch
from op_testing import assert_trains_in_graph, bits, captured_in_graph, needs_gpu, on_side_stream
from sequence_testing import CELLS, LAYERS, inputs_of, results_and_gradients
from torch import Tensor

import lltm_jit

# dtype, and (steps, batch_size, hidden_size): an odd size, one for whole clusters, one for a grid.
CASES = [
    (torch.float, (6, 5, 33)),
    (torch.half, (9, 16, 256)),
    (torch.half, (9, 16, 1024)),
]


@needs_gpu
@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_side_stream(cell, dtype, size):
    inputs = inputs_of(cell, *size, dtype, "cuda", control=True)

    def run(gates: Tensor) -> list[Tensor]:
        return results_and_gradients(cell, inputs._replace(gates=gates))

    expected = run(inputs.gates)
    assert bits(on_side_stream(run, [inputs.gates])) == bits(expected)


@needs_gpu
@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_cuda_graph(cell, dtype, size):
    """After a first call, which makes the variant."""
    inputs = inputs_of(cell, *size, dtype, "cuda", control=True)
    captured = captured_in_graph(lambda: tuple(results_and_gradients(cell, inputs)))
    assert bits(captured) == bits(results_and_gradients(cell, inputs))


@needs_gpu
@pytest.mark.parametrize("kind", LAYERS)
def test_cuda_graph_of_a_whole_training_step(kind):
    """Forward, loss, backward and optimizer in one graph do what they do eagerly.

    In both directions, with lengths and resets that lie on the GPU.
    """
    torch.manual_seed(0)
    layer = LAYERS[kind](8, 32, bidirectional=True, device="cuda")
    x, target = torch.randn(5, 4, 8, device="cuda"), torch.randn(5, 4, 64, device="cuda")
    lengths = torch.tensor([5, 2, 4, 1], device="cuda")
    reset = torch.rand(5, 4, device="cuda") < 0.3

    def loss_of(layer):
        return (layer(x, lengths=lengths, reset=reset)[0] - target).square().mean()

    assert_trains_in_graph(layer, loss_of)


@needs_gpu
def test_graphed_callable():
    layer = lltm_jit.GRU(8, 32, device="cuda")
    plain = copy.deepcopy(layer)
    samples = [
        torch.randn(shape, device="cuda", requires_grad=True) for shape in ((5, 4, 8), (1, 4, 32))
    ]
    graphed = torch.cuda.make_graphed_callables(layer, tuple(samples))
    inputs = [torch.randn_like(sample, requires_grad=True) for sample in samples]
    found = []
    for function in (graphed, plain):
        output, state = function(*inputs)
        (output.sum() + state.square().sum()).backward()
        found.append([output, state, *(t.grad for t in (*inputs, *function.parameters()))])
        for tensor in inputs:
            tensor.grad = None
    assert bits(found[0]) == bits(found[1])


@needs_gpu
@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_streams_at_the_same_time(cell, dtype, size):
    """Several sequences at once do not disturb each other, which may not all be resident."""
    cases = [inputs_of(cell, *size, dtype, "cuda") for _ in range(6)]
    expected = [bits(results_and_gradients(cell, inputs)) for inputs in cases]
    streams, found = [torch.cuda.Stream() for _ in cases], []
    torch.cuda.synchronize()
    for stream, inputs in zip(streams, cases, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            found.append(results_and_gradients(cell, inputs))
    torch.cuda.synchronize()
    assert [bits(results) for results in found] == expected


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_tensors_on_another_device_than_the_current_one(cell, dtype, size):
    """After the same on the current one, what is remembered of which may not be taken for it."""
    inputs = inputs_of(cell, *size, dtype, "cuda:0")
    expected = results_and_gradients(cell, inputs)
    other = type(inputs)(*(t if t is None else t.to("cuda:1") for t in inputs))
    actual = results_and_gradients(cell, other)
    assert torch.cuda.current_device() == 0
    assert {tensor.device.index for tensor in actual} == {1}
    torch.testing.assert_close(actual, expected, check_device=False)
