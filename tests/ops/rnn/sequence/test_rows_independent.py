"""What a sample gets does not depend on the other samples of its batch, bit for bit."""

from collections.abc import Callable, Sequence

import pytest
import torch
from layer_testing import LAYERS, as_list, as_state, states_of, tensors
from lltm_testing import cell_inputs
from op_testing import DTYPES, needs_gpu
from row_testing import assert_rows_independent
from sequence_testing import controls, inputs_of
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


def of_leaves(function: Callable[..., Sequence[Tensor]], count: int):
    """Results of as many tensors as these, and with the others for theirs the gradients."""

    def run(*tensors: Tensor) -> list[Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors[:count]]
        results = function(*leaves)
        return [*results, *torch.autograd.grad(results, leaves, tensors[count:])]

    return run


@pytest.mark.parametrize(("device", "dtype", "size"), SEQUENCES, ids=str)
def test_sequences(cell, device, dtype, size):
    gates, weight_hh, bias_hh, parameters, h_0, c_0, _ = inputs_of(cell, *size, dtype, device)
    control = controls(*size[:2]).to(device)
    states = [h_0] if c_0 is None else [h_0, c_0]

    def run(gates: Tensor, h_0: Tensor, c_0: Tensor | None = None) -> tuple[Tensor, ...]:
        others = (weight_hh, bias_hh, parameters, h_0, c_0, control)
        return recurrent_sequence(cell, gates, *others)[: 1 + len(states)]

    grads = [torch.randn(*size, device=device).to(dtype), *(torch.randn_like(s) for s in states)]
    given = [gates, *states, *grads]
    dims = [t.dim() - 2 for t in given]
    assert_rows_independent(of_leaves(run, 1 + len(states)), given, dims)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("checkpoint", [0, 2])
def test_layers(kind, checkpoint, dtype, device):
    options = {"dtype": dtype, "device": device}
    layer = LAYERS[kind](20, 33, 2, bidirectional=True, checkpoint=checkpoint, **options)
    steps, rows = 5, 21
    lengths = torch.randint(0, steps + 1, (rows,))
    reset = torch.rand(steps, rows, device=device) < 0.3

    def run(x: Tensor, *states: Tensor) -> list[Tensor]:
        return tensors(layer(x, as_state(states), lengths=lengths, reset=reset))

    x, grad = (torch.randn(steps, rows, n, device=device).to(dtype) for n in (20, 66))
    states, grads = (as_list(states_of(layer, rows, **options)) for _ in range(2))
    given = [x, *states, grad, *grads]
    assert_rows_independent(of_leaves(run, 1 + len(states)), given, 1)


# Batch, input and hidden size: on a CPU rows by rows, in panels, and the library's products.
CELL_SIZES = [(2, 3, 1), (9, 5, 33), (70, 40, 64), (260, 20, 40), (33, 1024, 1024)]


@pytest.mark.parametrize("size", CELL_SIZES, ids=str)
def test_cells(size, dtype, device):
    input, weights, bias, *state = cell_inputs(*size, dtype=dtype, device=device)

    run = of_leaves(lambda input, h, c: lltm_cell(input, weights, bias, h, c), 3)
    assert_rows_independent(run, [input, *state, *(torch.randn_like(s) for s in state)])
