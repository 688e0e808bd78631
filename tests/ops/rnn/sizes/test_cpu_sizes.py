"""Sizes around each of the bounds that the CPU's kernels have, and the smallest sizes.

The bounds are those of the code: see kernels/core/products/bounds.h, and the files that
plans/cpu_bounds.h includes.
"""

import itertools
from typing import Any

import plans
import pytest
import test_sequence
import torch
import torch.nn.functional as F
from layer_testing import LAYERS, THEIRS, assert_alike, pair, with_gradients
from op_testing import DTYPES, bits
from sequence_testing import CELLS, cell_of, inputs_of
from test_lltm import check_against_float64
from torch import Tensor

from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.rnn.sequence import input_gates

SMALLEST = (0, 1, 2)
LANES = (4, 8, 16, 24, 32, 48)  # of vectors and panels: floats and doubles, with AVX2 and AVX-512


@pytest.fixture(scope="module")
def bounds() -> Any:
    return plans.load().cpu_bounds


def around(*bounds: int) -> list[int]:
    return sorted({bound + step for bound in bounds for step in (-1, 0, 1)})


def whole_numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    """So small that products and their sums are exact in any order."""
    return torch.randint(-4, 5, shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)
def test_products_of_all_steps_are_exact(dtype, bounds):
    """Each dimension around each bound of a product's rows, columns and depth.

    It is another one of the three in the forward pass and in each of the gradients.
    """
    columns = bounds.packed_columns(torch.finfo(dtype).bits // 8)
    tiles = (4, 6)  # with those around lanes, each number of rows that a tile may have
    large = around(*tiles, *LANES, *bounds.packed_rows(), *columns, *bounds.packed_depth())
    cases = set(itertools.product(SMALLEST, repeat=3))
    for size, others in itertools.product(large, [(0, 1), (1, 1), (2, 5), (5, 2)]):
        cases |= {(size, *others), (others[0], size, others[1]), (*others, size)}
    for rows, depth, width in sorted(cases):
        shapes = ((1, rows, depth), (width, depth), (width,))
        given = [whole_numbers(*shape, dtype=dtype) for shape in shapes]
        grad = whole_numbers(1, rows, width, dtype=dtype)
        found = []
        for function in (input_gates, F.linear):
            leaves = [t.clone().requires_grad_() for t in given]
            gates = function(*leaves)
            found.append([gates, *torch.autograd.grad(gates, leaves, grad)])
        assert all(map(torch.equal, *found)), (rows, depth, width)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(dtype, marks=[pytest.mark.slow] * (dtype != torch.float)) for dtype in DTYPES],
    ids=str,
)
def test_a_cell_around_each_bound(dtype, bounds):
    def check(*sizes: int) -> None:
        check_against_float64(sizes, dtype, "cpu", bias=sizes[0] % 2 == 0, depth=max(sizes))

    for rows in around(*bounds.cell_rows()):
        check(rows, 3, 5)
    deepest = around(*bounds.cell_columns()[-1:])
    for columns in around(*LANES, *bounds.cell_columns()):
        for rows in (1, 2, 3):
            check(rows, columns - 1, 1)
            if rows == 3 or columns not in deepest:  # where there are millions of weights
                check(rows, 1, columns - 1)
    # As large a gradient of the weights as is made in parts, and a larger one.
    rows, hidden = bounds.cell_rows()[-1] + 1, 128
    columns = bounds.cell_split() // (3 * hidden)
    check(rows, columns - hidden, hidden)
    check(rows, columns - hidden + 1, hidden)


def test_the_smallest_cells():
    for size in itertools.product((*SMALLEST, 2049), SMALLEST, SMALLEST):
        check_against_float64(size, torch.float, "cpu", bias=True, depth=size[0])


# Of one cell each type: the products are the same for all.
OF_CELLS = [(cell, torch.float) for cell in CELLS]
OF_CELLS += [("lstm", torch.bfloat16), ("gru", torch.bfloat16)]
OF_CELLS += [pytest.param("gru", dtype, marks=pytest.mark.slow) for dtype in DTYPES[::3]]


@pytest.mark.parametrize(("cell", "dtype"), OF_CELLS, ids=str)
def test_sequences_around_each_bound(cell, dtype, bounds):
    for rows in around(*bounds.sequence_rows()):
        test_sequence.check(cell, inputs_of(cell, 2, rows, 9, dtype))
    depth = bounds.sequence_depth()[dtype == torch.bfloat16]
    # Of the products with the gates' gradients, and with h.
    hidden = around(*LANES, depth // cell_of(cell).gates, *([depth] if cell == "lstm" else []))
    for number, size in enumerate(hidden):
        inputs = inputs_of(cell, 1 + number % 2, 1 + number // 2 % 2, size, dtype)
        test_sequence.check(cell, inputs, depth=cell_of(cell).gates * size)


@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16], ids=str)
def test_any_number_of_rows(cell, dtype, bounds):
    """Has the bits of as many rows of a large batch, forward and backward, and of a layer.

    Arrays that are too small for a number of rows end the process: Note [Kept memory].
    """
    whole = inputs_of(cell, 3, 130, 9, dtype, control=True)
    layer, x = LAYERS[cell.upper()](5, 9, dtype=dtype), torch.randn(3, 130, 5).to(dtype)

    def results(rows: int) -> list[Tensor]:
        parts = {
            name: getattr(whole, name)[..., :rows, :]
            for name in ("gates", "h_0", "c_0")
            if getattr(whole, name) is not None
        }
        given = whole._replace(**parts, control=whole.control[:, :rows]).requires_grad()
        found = recurrent_sequence(cell, *given)
        leaves = [given.gates, given.h_0]
        grads = torch.autograd.grad(found, leaves, [r.detach().cos() for r in found])
        with torch.no_grad():
            output, _ = layer(x[:, :rows])
        return [*found, *grads, output]

    expected = results(130)
    tile, block = bounds.sequence_rows()
    for rows in (*range(1, 4 * tile + 2), *around(block, 2 * block - 1)):
        found = results(rows)
        assert bits(found) == bits([t[..., :rows, :] for t in expected]), rows


@pytest.mark.parametrize("checkpoint", SMALLEST)
@pytest.mark.parametrize("kind", THEIRS)
def test_the_smallest_layers(kind, checkpoint):
    for steps, rows in itertools.product((1, 2, 3), SMALLEST):
        check_layer(kind, (1, 1), (steps, rows), checkpoint)


@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_more_units_than_a_product_keeps_columns(kind, of_input, bounds):
    (kept,) = bounds.packed_columns(8)
    for rows in (1, 2):
        check_layer(kind, (kept + 1, 1) if of_input else (1, kept + 1), (2, rows))


def check_layer(kind, sizes, given, checkpoint=0):
    """Input and hidden size, steps and rows, beside torch's layer, which takes no 0 rows."""
    ours, theirs = pair(kind, *sizes, dtype=torch.double)
    ours.checkpoint = checkpoint
    x = torch.randn(*given, sizes[0], dtype=torch.double, requires_grad=True)
    if given[1] > 0:
        assert_alike((ours, theirs), x, leaves=[x])
        return
    output, *_ = found = with_gradients(ours, x, leaves=[x])
    assert output.shape == (given[0], 0, sizes[1])
    assert all((grad == 0).all() for grad in found)
