"""What a sample gets does not depend on the other samples of its batch, bit for bit."""

from __future__ import annotations

import pytest
import torch
from lltm_testing import cell_inputs
from op_testing import DTYPES, needs_gpu
from row_testing import assert_rows_independent
from sequence_testing import LAYERS, controls, inputs_of
from torch import Tensor

from lltm_jit.functional import lltm_cell, recurrent_sequence

# Steps, rows, hidden units: on a CPU few rows and many, and units for several threads.
SIZES = [(1, 2, 1), (3, 5, 17), (4, 33, 40), (2, 70, 64), (3, 8, 256)]
# On a GPU each kernel that the plan may take. In float: one block, clusters, grids of few rows and
# with streamed weights, a product of few rows step by step; of many rows clusters, grids with two
# phases and with one, the library's product step by step.
FLOAT_SIZES = [
    *[(3, 5, 17), (3, 8, 64), (3, 8, 256), (3, 8, 512), (3, 8, 2048), (2, 3, 2120)],
    *[(3, 64, 256), (3, 64, 512), (3, 64, 1024), (3, 190, 500), (2, 64, 2176)],
]
HALF_SIZES = [
    *[(3, 5, 17), (3, 8, 512), (3, 64, 512), (3, 64, 1024), (2, 64, 2176)],
    *[(3, 90, 1000), (3, 80, 1152), (2, 130, 1024)],  # 48 rows in a set, and many
]
GPU_SIZES = {
    torch.float: FLOAT_SIZES,
    torch.half: HALF_SIZES,
    torch.bfloat16: HALF_SIZES,
    torch.double: SIZES,
}
SEQUENCES = [
    *[("cpu", dtype, size) for dtype in DTYPES for size in SIZES],
    *[
        pytest.param("cuda", dtype, size, marks=needs_gpu)
        for dtype, sizes in GPU_SIZES.items()
        for size in sizes
    ],
]


def with_gradients(results: tuple[Tensor, ...], leaves: list[Tensor], grads) -> list[Tensor]:
    return [*results, *torch.autograd.grad(results, leaves, grads)]


@pytest.mark.parametrize(("device", "dtype", "size"), SEQUENCES, ids=str)
def test_sequences(cell, device, dtype, size):
    gates, weight_hh, bias_hh, parameters, h_0, c_0, _ = inputs_of(cell, *size, dtype, device)
    control = controls(*size[:2]).to(device)
    states = [h_0] if c_0 is None else [h_0, c_0]

    def run(*tensors: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in tensors[: 1 + len(states)]]
        gates, h_0, *c_0 = leaves
        results = recurrent_sequence(
            cell, gates, weight_hh, bias_hh, parameters, h_0, *c_0 or [None], control
        )[: 1 + len(states)]
        return with_gradients(results, leaves, tensors[1 + len(states) :])

    grads = [torch.randn(*size, device=device).to(dtype), *(torch.randn_like(s) for s in states)]
    given = [gates, *states, *grads]
    assert_rows_independent(run, given, [t.dim() - 2 for t in given])


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("checkpoint", [0, 2])
def test_layers(kind, checkpoint, dtype, device):
    """Two layers in both directions, with lengths and resets."""
    layer = LAYERS[kind](
        20, 33, 2, bidirectional=True, checkpoint=checkpoint, dtype=dtype, device=device
    )
    steps, rows = 5, 21
    lengths = torch.randint(0, steps + 1, (rows,))
    reset = torch.rand(steps, rows, device=device) < 0.3
    count = layer.cell.states

    def run(*tensors: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in tensors[: 1 + count]]
        x, *states = leaves
        state = tuple(states) if count > 1 else states[0]
        output, last = layer(x, state, lengths=lengths, reset=reset)
        results = (output, *(last if count > 1 else [last]))
        return with_gradients(results, leaves, tensors[1 + count :])

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).to(dtype)

    shapes = [(steps, rows, 20), *[(4, rows, 33)] * count]
    given = [random(*shape) for shape in [*shapes, (steps, rows, 66), *shapes[1:]]]
    assert_rows_independent(run, given, 1)


# Batch, input and hidden size: on a CPU rows by rows, in panels, and the library's products.
CELL_SIZES = [(2, 3, 1), (9, 5, 33), (70, 40, 64), (260, 20, 40), (33, 1024, 1024)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", CELL_SIZES, ids=str)
def test_cells(size, dtype, device):
    input, weights, bias, *state = cell_inputs(*size, dtype=dtype, device=device)

    def run(*tensors: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in tensors[:3]]
        input, h, c = leaves
        return with_gradients(lltm_cell(input, weights, bias, h, c), leaves, tensors[3:])

    assert_rows_independent(run, [input, *state, *(torch.randn_like(s) for s in state)])
