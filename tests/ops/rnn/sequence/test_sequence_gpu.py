"""Whole sequences, and the LLTM cell, on a GPU: streams, graphs and devices."""

import copy
from collections.abc import Callable

import pytest
import torch
from layer_testing import LAYERS
from lltm_testing import cell_inputs
from op_testing import (
    assert_trains_in_graph,
    bits,
    captured_in_graph,
    for_each,
    needs_gpu,
    on_side_stream,
)
from op_testing import results_and_gradients as results_of_function
from sequence_testing import CELLS, Inputs, inputs_of, results_and_gradients
from torch import Tensor

import lltm_jit
from lltm_jit.functional import lltm_cell

pytestmark = needs_gpu
# dtype, and (steps, batch_size, hidden_size): an odd size, one for whole clusters, one for a grid.
CASES = [
    (torch.float, (6, 5, 33)),
    (torch.half, (9, 16, 256)),
    (torch.half, (9, 16, 1024)),
]
# Of the LLTM cell: batch, input and hidden size. The last one takes clusters in 16 bits.
CELL_CASES = [
    (torch.float, (16, 32, 128)),
    (torch.float, (64, 256, 512)),
    (torch.half, (64, 256, 512)),
]
EVERY = [(cell, *case) for cell in CELLS for case in CASES]
EVERY += [("lltm_cell", *case) for case in CELL_CASES]
case = for_each("case", EVERY)


def call(
    operator: str, dtype: torch.dtype, size: tuple[int, ...], device: str = "cuda"
) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
    """The tensors of a call, and what gives the results and gradients for such tensors."""
    if operator == "lltm_cell":

        def step(*tensors: Tensor) -> list[Tensor]:
            return results_of_function(lltm_cell, [t.detach().requires_grad_() for t in tensors])

        return [*cell_inputs(*size, dtype=dtype, device=device)], step
    inputs = inputs_of(operator, *size, dtype, device, control=True)

    def sequence(*tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        given = Inputs(*(t if t is None else next(rest) for t in inputs))
        return results_and_gradients(operator, given)

    return [t for t in inputs if t is not None], sequence


def test_side_stream(case):
    inputs, run = call(*case)
    expected = run(*inputs)
    assert bits(on_side_stream(run, inputs)) == bits(expected)


def test_cuda_graph(case):
    inputs, run = call(*case)
    captured = captured_in_graph(lambda: tuple(run(*inputs)))
    assert bits(captured) == bits(run(*inputs))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_on_another_device_than_the_current_one(case):
    """After the same on the current one, what is remembered of which may not be taken for it."""
    inputs, run = call(*case)
    expected, actual = run(*inputs), run(*(t.to("cuda:1") for t in inputs))
    assert torch.cuda.current_device() == 0
    assert {tensor.device.index for tensor in actual} == {1}
    torch.testing.assert_close(actual, expected, check_device=False)


def test_cuda_graph_of_a_whole_training_step(kind):
    """Forward, loss, backward and optimizer in one graph do what they do eagerly.

    In both directions, with lengths and resets that lie on the GPU.
    """
    layer = LAYERS[kind](8, 32, bidirectional=True, device="cuda")
    x, target = torch.randn(5, 4, 8, device="cuda"), torch.randn(5, 4, 64, device="cuda")
    lengths = torch.tensor([5, 2, 4, 1], device="cuda")
    reset = torch.rand(5, 4, device="cuda") < 0.3

    def loss_of(layer):
        return (layer(x, lengths=lengths, reset=reset)[0] - target).square().mean()

    assert_trains_in_graph(layer, loss_of)


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


@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
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
