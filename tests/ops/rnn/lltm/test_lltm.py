"""The LLTM cell: accuracy over dtypes, sizes, layouts and values."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lltm_testing import IMPLEMENTATIONS, NAMES, cell_gradients, cell_inputs, to_double
from op_testing import (
    ACTIVATIONS,
    DTYPES,
    LAYOUTS,
    assert_accurate,
    needs_gpu,
    with_layout,
)

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


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_backward_match_float64(sizes, dtype, device, bias):
    check_against_float64(sizes, dtype, device, bias)


@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", GPU_SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_every_tile_shape_matches_float64(sizes, dtype, bias):
    check_against_float64(sizes, dtype, "cuda", bias)


# On a CPU: products of several blocks, in rows, in columns and in depth, with and without a copy,
# and sizes from which the library multiplies bfloat16.
CPU_SIZES = [(19, 37, 350), (70, 600, 520), (200, 49, 7), (16, 96, 96)]
CPU_SIZES += [(600, 8, 16), (16, 64, 1024)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float])
@pytest.mark.parametrize("sizes", CPU_SIZES)
def test_every_block_of_the_cpu_products_matches_float64(sizes, dtype):
    check_against_float64(sizes, dtype, "cpu", bias=True)


def roundings(like: torch.Tensor) -> int:
    """How many an element may have, beside twice the worst error of the same maths in PyTorch.

    Tensor cores, which multiply floats in parts, truncate their sums.
    """
    return 2 if like.is_cuda and like.dtype == torch.float else 1


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
    ulps = roundings(inputs[0]) + more_ulps
    for actual, exact, baseline in zip(*found, strict=True):
        assert_accurate(actual, exact, baseline, ulps=ulps, sums=True, parts=parts)


@pytest.mark.parametrize("dtype", [torch.float, torch.half])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(33, 31, 40), (48, 40, 280)])
def test_any_layout(sizes, layout, dtype, device):
    inputs = cell_inputs(*sizes, dtype=dtype, device=device)
    parts = (3 * sizes[2]) ** 0.5 / 2  # where rows repeat, their roundings all go one way
    check(tuple(with_layout(t, layout) for t in inputs), parts=parts)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("sizes", [(4, 8, 16), (48, 40, 280)])
def test_one_unaligned_tensor_among_aligned_ones(sizes, position, dtype, device):
    inputs = list(cell_inputs(*sizes, dtype=dtype, device=device))
    inputs[position] = with_layout(inputs[position], "offset")
    check(inputs)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_implementations_agree(impl, device):
    inputs = cell_inputs(6, 9, 11, device=device)
    for actual, expected in zip(
        lltm_cell(*inputs, impl=impl), lltm_cell_reference(*inputs), strict=True
    ):
        torch.testing.assert_close(actual, expected)


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


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.half, 2e-2), (torch.float, 1e-5)])
@pytest.mark.parametrize("sizes", [(3, 5, 7), (8, 8, 16)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 100.0, -100.0])
def test_extreme_values(value, sizes, dtype, tolerance, device):
    """Overflow and NaN appear exactly where the reference has them, in the gradients too."""
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance, equal_nan=True)
    input, weights, bias, old_h, old_cell = cell_inputs(*sizes, dtype=dtype, device=device)
    for position, tensor in enumerate([bias, old_cell]):
        changed = tensor.clone()
        changed.view(-1)[3] = value
        inputs = [input, weights, bias, old_h, old_cell]
        inputs[[2, 4][position]] = changed
        for actual, expected in zip(lltm_cell(*inputs), lltm_cell_reference(*inputs), strict=True):
            close(actual, expected)
        if value in (100.0, -100.0):
            ones = torch.ones_like(old_h)
            for actual, expected in zip(
                cell_gradients(lltm_cell, inputs, ones, ones),
                cell_gradients(lltm_cell_reference, inputs, ones, ones),
                strict=True,
            ):
                close(actual, expected)


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
    inputs = [t.detach() for t in cell_inputs(*sizes, dtype=dtype, device="cuda")]
    for tensor in (inputs[0], inputs[1], inputs[3]):
        tensor[-1, 5] = value
    inputs[1][0, 5] *= 1e-30  # so that some products with the largest stay finite
    ones = torch.ones_like(inputs[3])
    for function in (lambda f: f(*inputs), lambda f: cell_gradients(f, inputs, ones, ones)):
        for actual, expected in zip(
            function(lltm_cell), function(lltm_cell_reference), strict=True
        ):
            torch.testing.assert_close(
                actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True
            )


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


def test_tutorial_calls(device):
    inputs = cell_inputs(device=device, requires_grad=True)
    input, weights, _, old_h, _ = inputs
    new_h, new_cell, input_gate, output_gate, candidate_cell, X, gate_weights = lltm_forward(
        *(t.detach() for t in inputs)
    )
    expected_h, expected_cell = lltm_cell_reference(*inputs)
    torch.testing.assert_close((new_h, new_cell), (expected_h.detach(), expected_cell.detach()))
    torch.testing.assert_close(X, torch.cat([old_h, input], 1).detach())
    grad_h, grad_cell = torch.randn_like(new_h), torch.randn_like(new_cell)
    actual = lltm_backward(
        grad_h,
        grad_cell,
        new_cell,
        input_gate,
        output_gate,
        candidate_cell,
        X,
        gate_weights,
        weights.detach(),
    )
    d_input, d_weights, d_bias, d_old_h, d_old_cell = torch.autograd.grad(
        (expected_h, expected_cell), inputs, (grad_h, grad_cell)
    )
    torch.testing.assert_close(actual, [d_old_h, d_input, d_weights, d_bias[None], d_old_cell])


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_tutorial_calls_keep_a_float_cell(dtype, device):
    inputs = cell_inputs(dtype=dtype, device=device)
    inputs = (*inputs[:4], inputs[4].float())
    new_h, *saved = lltm_forward(*inputs)
    assert (new_h.dtype, saved[0].dtype) == (dtype, torch.float)
    ones = torch.ones_like(saved[0])
    actual = lltm_backward(ones.to(dtype), ones, *saved, inputs[1])
    exact = cell_gradients(lltm_cell_reference, to_double(inputs), ones, ones)
    baseline = cell_gradients(lltm_cell_reference, inputs, ones, ones)
    exact, baseline = (dict(zip(NAMES, grads, strict=True)) for grads in (exact, baseline))
    order = ("old_h", "input", "weights", "bias", "old_cell")
    for name, grad in zip(order, actual, strict=True):
        grad = grad.view_as(exact[name])  # the tutorial's d_bias has a row
        assert_accurate(grad, exact[name], baseline[name], sums=True, parts=ACTIVATIONS)


@pytest.mark.parametrize("function", [lltm_cell, lltm_forward])
@pytest.mark.parametrize("pair", [tuple, list])
def test_state_as_a_pair(pair, function):
    input, weights, bias, old_h, old_cell = cell_inputs()
    torch.testing.assert_close(
        function(input, pair((old_h, old_cell)), weights, bias),
        function(input, weights, bias, old_h, old_cell),
    )
