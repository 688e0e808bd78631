"""The LLTM cell: accuracy over dtypes, sizes, layouts and values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lltm_testing import cell_gradients, cell_inputs, to_double
from op_testing import ACTIVATIONS, DTYPES, LAYOUTS, assert_accurate, needs_gpu, with_layout
from sequence_testing import all_accurate

from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

ops = torch.ops.lltm_jit


# (batch_size, input_size, hidden_size)
SIZES = [(0, 3, 4), (1, 1, 1), (3, 0, 5), (2, 3, 0)]
SIZES += [(2, 31, 33), (1, 33, 31), (33, 32, 32), (5, 129, 127), (16, 32, 128), (127, 5, 129)]


# On a GPU each tile shape of the kernels with own products, aligned and not.
GPU_SIZES = [(40, 16, 784), (96, 33, 257), (128, 64, 1024), (96, 63, 1023), (190, 88, 1048)]
GPU_SIZES += [(8, 1536, 1536)]
# Clusters in 16 bits: more stages of k than fit shared memory, twice as many and more, parts of
# stages, no input, and blocks without a stage.
GPU_SIZES += [(40, 1544, 264), (20, 136, 808), (130, 1000, 520), (70, 0, 776), (40, 3800, 264)]
GPU_SIZES += [(20, 1600, 808), (2100, 8, 8)]
# On a CPU: products of several blocks, in rows, in columns and in depth, with and without a copy,
# and sizes from which the library multiplies bfloat16.
CPU_SIZES = [(19, 37, 350), (70, 600, 520), (200, 49, 7), (16, 96, 96)]
CPU_SIZES += [(600, 8, 16), (16, 64, 1024)]


@pytest.mark.thinned
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_backward_match_float64(sizes, dtype, device, bias):
    check_against_float64(sizes, dtype, device, bias)


@needs_gpu
@pytest.mark.parametrize("sizes", GPU_SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_every_tile_shape_matches_float64(sizes, dtype, bias):
    check_against_float64(sizes, dtype, "cuda", bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float])
@pytest.mark.parametrize("sizes", CPU_SIZES)
def test_every_block_of_the_cpu_products_matches_float64(sizes, dtype):
    check_against_float64(sizes, dtype, "cpu", bias=True)


def check_against_float64(sizes, dtype, device, bias, depth=0):
    """With the roundings of sums of some depth: a random walk of so many."""
    check(cell_inputs(*sizes, dtype=dtype, device=device, bias=bias), depth**0.5 / 2)


def check(inputs, more_ulps=0.0, parts=ACTIVATIONS):
    """Values and gradients against the reference in float64, by that in the same dtype."""
    weights = torch.randn(2, *inputs[3].shape, dtype=torch.double, device=inputs[3].device)
    weights = weights.to(inputs[3])
    ways = ((lltm_cell, inputs), (lltm_cell_reference, to_double(inputs)))
    found = [
        [*function(*given), *cell_gradients(function, given, *weights)]
        for function, given in (*ways, (lltm_cell_reference, inputs))
    ]
    # Tensor cores, which multiply floats in parts, truncate their sums.
    truncated = inputs[0].is_cuda and inputs[0].dtype == torch.float
    all_accurate(*found, ulps=1 + truncated + more_ulps, sums=True, parts=parts)


@pytest.mark.parametrize("dtype", [torch.float, torch.half])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(33, 31, 40), (48, 40, 280)])
def test_any_layout(sizes, layout, dtype, device):
    inputs = cell_inputs(*sizes, dtype=dtype, device=device)
    parts = (3 * sizes[2]) ** 0.5 / 2  # where rows repeat, their roundings all go one way
    check(tuple(with_layout(t, layout) for t in inputs), parts=parts)


@pytest.mark.thinned
@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("sizes", [(4, 8, 16), (48, 40, 280)])
def test_one_unaligned_tensor_among_aligned_ones(sizes, position, dtype, device):
    inputs = list(cell_inputs(*sizes, dtype=dtype, device=device))
    inputs[position] = with_layout(inputs[position], "offset")
    check(inputs)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(4, 8, 16), (40, 16, 784), (8, 1536, 1536)])
def test_cell_kept_in_float(sizes, dtype, device):
    input, weights, bias, old_h, old_cell = cell_inputs(*sizes, dtype=dtype, device=device)
    old_cell = 1000 * torch.rand(old_h.shape, device=device)
    inputs = (input, weights, bias, old_h, old_cell)
    new_h, new_cell = lltm_cell(*inputs)
    assert (new_h.dtype, new_cell.dtype) == (dtype, torch.float)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    assert_accurate(new_h, exact[0], baseline[0], sums=True, parts=ACTIVATIONS)
    gates = 2 * torch.finfo(dtype).eps / torch.finfo(torch.float).eps  # which are of that dtype
    assert_accurate(new_cell, exact[1], baseline[1], sums=True, parts=gates)
    ones = torch.ones_like(old_cell)
    grads = cell_gradients(lltm_cell, inputs, ones, ones)
    assert [g.dtype for g in grads] == [dtype] * 4 + [torch.float]


def assert_as_reference(inputs, tolerance: float, gradients: bool = True) -> None:
    """NaN and infinities are where the reference has them."""
    ones, found = torch.ones_like(inputs[3]), []
    for function in (lltm_cell, lltm_cell_reference):
        found.append([*function(*inputs)])
        if gradients:
            found[-1] += cell_gradients(function, inputs, ones, ones)
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.half, 2e-2), (torch.float, 1e-5)])
@pytest.mark.parametrize("sizes", [(3, 5, 7), (8, 8, 16)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 100.0, -100.0])
@pytest.mark.parametrize("position", [2, 4], ids=["bias", "old_cell"])
def test_extreme_values(position, value, sizes, dtype, tolerance, device):
    inputs = cell_inputs(*sizes, dtype=dtype, device=device)
    inputs[position].view(-1)[3] = value
    assert_as_reference(inputs, tolerance, gradients=abs(value) == 100.0)


@needs_gpu
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3.4028e38])
@pytest.mark.parametrize(
    ("sizes", "dtype", "tolerance"),
    [
        ((40, 16, 784), torch.float, 1e-4),
        ((190, 88, 1048), torch.float, 1e-4),
        ((40, 1544, 264), torch.half, 2e-2),
    ],
)
def test_tensor_cores_keep_what_a_float_can_be(sizes, dtype, tolerance, value):
    """A float's products are made of its halves, which infinities and the largest do not have."""
    inputs = cell_inputs(*sizes, dtype=dtype, device="cuda")
    for tensor in (inputs[0], inputs[1], inputs[3]):
        tensor[-1, 5] = value
    inputs[1][0, 5] *= 1e-30  # so that some products with the largest stay finite
    assert_as_reference(inputs, tolerance)


@given(
    sizes=st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(1, 40)),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_random_shapes_layouts_and_values(sizes, layout, dtype, scale):
    inputs = cell_inputs(*sizes, dtype=dtype)
    inputs = tuple(with_layout(t * scale, layout) for t in inputs)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    for actual, e, b in zip(lltm_cell(*inputs), exact, baseline, strict=True):
        ulps = 1 if scale <= 1 else 1 + largest_sum(*inputs)
        assert_accurate(actual, e, b, ulps=ulps, sums=True, parts=ACTIVATIONS)


def largest_sum(input, weights, bias, old_h, old_cell):
    """The size of the parts of a pre-activation, whose roundings it has.

    Of large inputs so few units are not saturated that the reference's own error tells nothing.
    """
    parts = torch.cat([old_h, input], 1).double().abs() @ weights.double().abs().t()
    return int(parts.max()) if parts.numel() else 0


# A cell of another dtype than the rest is kept in float.
@pytest.mark.parametrize("dtype", [torch.double, torch.half, torch.bfloat16])
def test_tutorial_calls(dtype, device):
    *inputs, old_cell = cell_inputs(dtype=dtype, device=device)
    wide = torch.promote_types(dtype, torch.float)
    inputs = (*inputs, old_cell.to(wide))
    new_h, *saved = lltm_forward(*inputs)
    assert (new_h.dtype, saved[0].dtype) == (dtype, wide)
    torch.testing.assert_close(saved[4], torch.cat([inputs[3], inputs[0]], 1))
    grads = torch.randn_like(new_h), torch.randn_like(saved[0])
    of_h, of_input, of_weights, of_bias, of_cell = lltm_backward(*grads, *saved, inputs[1])
    assert of_bias.shape == (1, 21)  # the tutorial's has a row
    found = [new_h, saved[0], of_input, of_weights, of_bias[0], of_h, of_cell]
    exact, usual = (
        [*lltm_cell_reference(*given), *cell_gradients(lltm_cell_reference, given, *grads)]
        for given in (to_double(inputs), inputs)
    )
    all_accurate(found, exact, usual, sums=True, parts=ACTIVATIONS)


@pytest.mark.parametrize("function", [lltm_cell, lltm_forward])
@pytest.mark.parametrize("pair", [tuple, list])
def test_state_as_a_pair(pair, function):
    input, weights, bias, old_h, old_cell = inputs = cell_inputs()
    found = function(input, pair((old_h, old_cell)), weights, bias)
    torch.testing.assert_close(found, function(*inputs))
