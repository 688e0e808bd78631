"""The input's part of the gates of all steps, and the gradients of what it is made of."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from op_testing import assert_threads_change_no_bit, bits, needs_gpu
from sequence_testing import assert_within, launched
from torch import Tensor
from torch._dynamo.testing import EagerAndRecordGraphs

import lltm_jit
from lltm_jit.ops.rnn.sequence import input_gates

# Steps, rows, features, gates: tails of every kind, several blocks of depth, columns and rows, and
# gradients of weights that are deeper than what is kept of the other side.
SIZES = [
    (1, 1, 1, 1), (5, 3, 7, 9), (0, 3, 4, 5), (3, 0, 4, 5), (3, 2, 0, 5), (3, 2, 4, 0),
    (7, 13, 300, 51), (40, 70, 17, 33), (3, 1, 2500, 20), (1, 5, 2049, 3), (4, 27, 600, 801),
]  # fmt: skip


def operands(size: tuple[int, ...], dtype: torch.dtype, layout: str = "dense") -> list[Tensor]:
    steps, rows, features, gates = size
    x = torch.randn(steps, rows, features, dtype=dtype)
    weight = torch.randn(gates, features, dtype=dtype)
    if layout == "transposed":
        x = torch.randn(rows, steps, features, dtype=dtype).transpose(0, 1)
        weight = torch.randn(features, gates, dtype=dtype).t()
    if layout == "apart":
        x = torch.randn(steps, rows, 2 * features, dtype=dtype)[..., ::2]
        weight = torch.randn(gates, features + 3, dtype=dtype)[:, 3:]
    if layout == "wide":  # rows aligned to 16 bytes, with others' numbers between them
        x = torch.randn(steps, rows, features + 8, dtype=dtype)[..., 4:-4]
    if layout == "expanded":
        x = torch.randn(1, rows, features, dtype=dtype).expand(steps, -1, -1)
    return [tensor.requires_grad_() for tensor in (x, weight, torch.randn(gates, dtype=dtype))]


def with_gradients(function, tensors: list[Tensor], grad: Tensor) -> list[Tensor]:
    gates = function(*tensors)
    return [gates, *torch.autograd.grad(gates, tensors, grad)]


def assert_near_float64(function, given: list[Tensor], grad: Tensor, error: float):
    """Within a part of the largest number of each result; what was found."""
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    found = with_gradients(function, given, grad)
    expected = with_gradients(F.linear, exact, grad.double())
    assert_within(found, expected, error)
    return found


@pytest.mark.thinned
@pytest.mark.parametrize("layout", ["dense", "transposed", "apart", "expanded"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double], ids=str)
def test_agrees_with_float64(dtype, size, layout):
    grad = torch.randn(*size[:2], size[3], dtype=dtype)
    if layout == "expanded":
        grad = grad[:1, :1].expand(*size[:2], -1) if grad.numel() else grad
    # In double the other side is rounded as well, as many times as its sums have terms.
    error = {torch.float: 10, torch.double: 200}.get(dtype, 1) * torch.finfo(dtype).eps
    assert_near_float64(input_gates, operands(size, dtype, layout), grad, error)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("steps", "named"),
    [(1, {}), (1, {"num_heads": 2}), (3, {}), (3, {"num_heads": 2}), (3, {"proj_size": 8})],
    ids=str,
)
def test_a_library_gets_16_bits_only_where_the_processor_multiplies_them(steps, named, dtype):
    """Elsewhere it converts each number first, which takes many times as long as floats."""
    names = {torch.half: "avx512_fp16", torch.bfloat16: "avx512_bf16"}
    by_library = torch.cpu.get_capabilities().get(names[dtype], True)
    layer = lltm_jit.LSTM(8, 16, dtype=dtype, **named)
    x = torch.randn(steps, 4, 8, dtype=dtype)
    h_0 = torch.randn(1, 4, named.get("proj_size", 16), dtype=dtype).requires_grad_()
    c_0 = torch.randn(1, 4, 16, dtype=dtype).requires_grad_()
    with torch.profiler.profile() as profile:
        layer(x, (h_0, c_0))[0].sum().backward()
    products = {event.key for event in profile.key_averages()} & {"aten::mm", "aten::addmm"}
    assert bool(products) == by_library


@needs_gpu
@pytest.mark.parametrize("size", [(7, 13, 300, 51), (0, 3, 4, 5), (3, 2, 0, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double], ids=str)
def test_agrees_on_a_gpu(dtype, size):
    given = [tensor.detach().cuda().requires_grad_() for tensor in operands(size, dtype)]
    grad = torch.randn(*size[:2], size[3], dtype=dtype, device="cuda")
    assert_near_float64(input_gates, given, grad, 20 * torch.finfo(dtype).eps)


@needs_gpu
@pytest.mark.parametrize("layout", ["dense", "transposed", "wide"])
@pytest.mark.parametrize(
    "size",
    [(64, 65, 512, 768), (37, 100, 1000, 200), (200, 500, 8, 768), (280, 500, 512, 64)],
    ids=str,
)
def test_large_products_of_floats_lose_a_few_units(size, layout):
    """Computed in parts of 16 bits; of the last size, the gradient of the weights in pieces.

    For rows and features of very different sizes. A unit is what rounding every product may change
    of a sum; truncated sums of tensor cores lose a few.
    """
    given = [tensor.detach().cuda() for tensor in operands(size, torch.float, layout)]
    grad = torch.randn(*size[:2], size[3], device="cuda")
    for tensor in (*given[:2], grad):
        tensor *= 2.0 ** torch.randint(-30, 30, (*tensor.shape[:-1], 1), device="cuda")
    found = with_gradients(input_gates, [tensor.requires_grad_() for tensor in given], grad)
    x, weight, bias = (tensor.detach() for tensor in given)
    matrix, of_gates, zero = x.flatten(0, 1), grad.flatten(0, 1), torch.zeros((), device="cuda")
    products = [(matrix, weight.t(), bias), (of_gates, weight, zero), (of_gates.t(), matrix, zero)]
    for ours, (a, b, initial) in zip(found, products, strict=False):
        wide = [tensor.double() for tensor in (a, b, initial)]
        exact = wide[0] @ wide[1] + wide[2]
        unit = torch.finfo(torch.float).eps * (wide[0].abs() @ wide[1].abs() + wide[2].abs())
        errors = (ours.double().flatten(0, -2) - exact).abs() / unit
        assert errors.mean() < 2
        assert errors.max() < 64


@needs_gpu
def test_large_products_keep_infinities_and_nans_in_their_rows():
    given = [t.detach().cuda() for t in operands((64, 65, 512, 768), torch.float)]
    x, grad = given[0], torch.randn(64, 65, 768, device="cuda")
    x[0, 1, 3], x[1, 2, 4], x[2, 3, 5] = torch.nan, torch.inf, 1e36
    x[3, 4] *= 2.0**-80
    given[1][9] *= 2.0**-45
    given[2][9] = 0
    grad[5, 6, 7], grad[6, 7, 8] = -torch.inf, torch.nan
    exact = [t.double().requires_grad_() for t in given]
    found = with_gradients(input_gates, [t.requires_grad_() for t in given], grad)
    expected = with_gradients(F.linear, exact, grad.double())
    for ours, theirs in zip(found[:3], expected, strict=False):
        assert ours.isfinite().any()
        theirs[theirs.abs() > torch.finfo(torch.float).max] *= torch.inf
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-2, equal_nan=True)
    tiny = (3, 4, 9)
    torch.testing.assert_close(found[0][tiny].double(), expected[0][tiny], rtol=1e-4, atol=0)


# Tiles that end, and depths that warps, or blocks, share unequally.
SMALL = [
    (1, 5, 4, 8), (3, 13, 12, 36), (9, 37, 64, 100), (1, 38, 164, 20), (4, 250, 24, 24),
    (32, 45, 8, 12),
]  # fmt: skip


@needs_gpu
@pytest.mark.parametrize("layout", ["dense", "wide", "transposed"])
@pytest.mark.parametrize("size", SMALL, ids=str)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
def test_small_products_round_no_factor_and_take_a_launch_each_way(dtype, size, layout, tmp_path):
    """Whatever the precision; the gradient of the bias comes with that of the weights."""
    given = [tensor.detach().cuda() for tensor in operands(size, dtype, layout)]
    grad = torch.randn(*size[:2], size[3], dtype=dtype, device="cuda")
    leaves = [tensor.requires_grad_() for tensor in given]
    terms = max(size[2], size[0] * size[1]) * torch.finfo(torch.float).eps
    error = terms + torch.finfo(dtype).eps
    found = assert_near_float64(partial(input_gates, tf32=True), leaves, grad, error)
    if layout != "transposed":  # whose rows are copied
        work = launched(lambda: with_gradients(input_gates, leaves, grad), tmp_path)
        assert [each["cat"] for each in work].count("kernel") == 2
    assert bits(with_gradients(input_gates, leaves, grad)) == bits(found)
    for i in range(2):  # alone, too
        (one,) = torch.autograd.grad(input_gates(*leaves, tf32=True), leaves[i], grad)
        assert bits([one]) == bits(found[i + 1 : i + 2])


@needs_gpu
def test_small_products_keep_nans_and_infinities_in_their_rows():
    x, weight, bias = (t.detach().cuda().requires_grad_() for t in operands(SMALL[1], torch.float))
    grad = torch.randn(3, 13, 36, device="cuda")
    with torch.no_grad():
        x[2, 12, 3], weight[9, 4], grad[0, 0, 35] = torch.nan, torch.inf, torch.nan
    gates, of_x, of_weight, of_bias = with_gradients(input_gates, [x, weight, bias], grad)
    assert gates.isfinite().sum() == (3 * 13 - 1) * 35
    assert of_x.isfinite().sum() == (3 * 13 - 1) * 11
    assert of_weight.isfinite().sum() == 35 * 11
    assert of_bias.isfinite().sum() == 35


@needs_gpu
def test_large_products_in_tf32_if_it_is_asked_for():
    """Only by the argument: torch's setting for its own products changes nothing."""
    x, weight, _ = (t.detach().cuda() for t in operands((64, 65, 512, 768), torch.float))
    right = x.double() @ weight.double().t()
    exact = input_gates(x, weight)
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert torch.equal(input_gates(x, weight), exact)
        usual = x @ weight.t()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    error, exact_error, usual_error = (
        (found.double() - right).norm().item()
        for found in (input_gates(x, weight, tf32=True), exact, usual)
    )
    assert 100 * exact_error < error <= 1.01 * usual_error


@pytest.mark.parametrize("size", [(40, 70, 17, 33), (4, 27, 600, 801)], ids=str)
def test_threads_change_no_bit(size):
    given, grad = operands(size, torch.float), torch.randn(*size[:2], size[3])
    assert_threads_change_no_bit(lambda: with_gradients(input_gates, given, grad))


def test_one_operator_in_a_compiled_layer():
    layer, backend = lltm_jit.LLTM(4, 5), EagerAndRecordGraphs()
    torch.compile(layer, fullgraph=True, backend=backend)(torch.randn(3, 2, 4))
    (graph,) = backend.graphs
    assert graph.code.count("lltm_jit.input_gates(") == 1


X, W = torch.zeros(3, 2, 4), torch.zeros(5, 4)
WRONG = {
    "a rank": ((X[0], W, None), r"input to have 3 dimensions"),
    "features": (
        (X, torch.zeros(5, 6), None),
        r"weight_ih to have shape \[gates\*hidden_size, input_size\] = \[5, 4\], but got \[5, 6\]",
    ),
    "a bias": (
        (X, W, torch.zeros(4)),
        r"bias to have shape \[gates\*hidden_size\] = \[5\], but got \[4\]",
    ),
    "a dtype": ((X, W.double(), None), r"weight_ih .* dtype of input \(Float\), but got Double"),
}


@pytest.mark.parametrize("way", WRONG)
def test_errors(way):
    args, message = WRONG[way]
    with pytest.raises(RuntimeError, match=r"input_gates\(\): expected " + message):
        input_gates(*args)
