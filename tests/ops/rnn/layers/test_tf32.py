"""Floats on a GPU have the precision that torch.backends asks for: layers, and single cells."""

import copy
from typing import Any

import pytest
import torch
from layer_testing import LAYERS, THEIRS, pair
from lltm_testing import cell_inputs, to_double
from op_testing import bits, needs_gpu, results_and_gradients
from torch import Tensor, nn

import lltm_jit
from lltm_jit.functional import lltm_cell, recurrent_sequence
from lltm_jit.ops.rnn.lltm import lltm_cell_reference
from lltm_jit.ops.rnn.recurrent_layer import projection
from lltm_jit.ops.rnn.recurrent_layer.types import Pass
from lltm_jit.ops.rnn.sequence import input_gates

# Steps, rows, hidden units: one block, clusters, grids with one phase and with two, weights in
# shared memory, sizes that run step by step.
SIZES = [(9, 5, 20), (9, 3, 52), (9, 16, 256), (7, 64, 512), (5, 16, 1024), (5, 64, 1024)]
SIZES += [(5, 190, 500), (3, 8, 2400), (3, 40, 2400)]


def use(precision: str) -> None:
    """The setting; conftest.py resets it before each test."""
    torch.backends.cudnn.rnn.fp32_precision = precision


def with_gradients(layer: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    output, _ = layer(x)
    return [output, *torch.autograd.grad(output, [x, *layer.parameters()], grad)]


def in_double(layer: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    return with_gradients(copy.deepcopy(layer).double(), x.double(), grad.double())


def error_of(found: list[Tensor], right: list[Tensor]) -> list[float]:
    return [((f.double() - r).norm() / r.norm()).item() for f, r in zip(found, right, strict=True)]


@needs_gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", THEIRS)
def test_errors_beside_torch(name, size):
    """Those of cuDNN's layer at most, but for sums: both round factors to nearest.

    In the biases' gradients, sums over all rows, the errors of either cancel by chance.
    """
    steps, rows, hidden = size
    ours, theirs = pair(name, hidden, hidden, device="cuda")
    x, grad = torch.randn(2, steps, rows, hidden, device="cuda")
    right = in_double(ours, x, grad)
    use("tf32")
    found = error_of(with_gradients(ours, x, grad), right)
    usual = error_of(with_gradients(theirs, x, grad), right)
    most = [u * (1.01 if r.dim() > 1 else 1.3) for u, r in zip(usual, right, strict=True)]
    assert all(f <= m for f, m in zip(found, most, strict=True)), (found, usual)
    if hidden <= 1024:
        assert found[0] > 1e-5
    use("ieee")
    exact = error_of(with_gradients(ours, x, grad), right)
    assert max(exact) < 2e-6


@needs_gpu
@pytest.mark.parametrize("scale", [1e-6, 1, 100])
@pytest.mark.parametrize("hidden", [20, 60])
@pytest.mark.parametrize("name", ["LSTM", "RNN_TANH"])
def test_exact_floats_of_any_size(name, hidden, scale):
    """Outputs within -1 and 1 have a known scale: they may be small, and first states large."""
    use("ieee")
    layer = LAYERS[name](hidden, hidden, bias=False, device="cuda")
    x, grad = torch.randn(2, 9, 5, hidden, device="cuda")
    h_0 = scale * torch.randn(1, 5, hidden, device="cuda")
    h_0[:, 1] = torch.nan

    def results(layer: nn.Module, x: Tensor, h_0: Tensor, grad: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        output = layer(x, (h_0, torch.zeros_like(h_0)) if name == "LSTM" else h_0)[0]
        return [output, *torch.autograd.grad(output, x, grad)]

    inputs = min(scale, 1) * x, h_0, grad / scale
    found = results(layer, *inputs)
    right = results(copy.deepcopy(layer).double(), *(tensor.double() for tensor in inputs))
    assert all(tensor[:, 1].isnan().all() for tensor in found)
    rows = [0, 2, 3, 4]
    errors = error_of([f[:, rows] for f in found], [r[:, rows] for r in right])
    assert max(errors) < (2e-6 if scale <= 1 else 1e-5)


# How many halves a factor has.
PARTS = {"tf32": 1, "ieee": 2}


def product_bound(rows: Tensor, weights: Tensor, parts: int) -> Tensor:
    """The errors that the layers' docstring allows for rows @ weights.t(), in double."""
    rows, weights = rows.abs(), weights.abs()
    smallest = rows.amax(1, keepdim=True) * weights.sum(1)
    smallest += rows.sum(1, keepdim=True) * weights.max()
    return 3 * 2.0 ** (-11 * parts) * (rows @ weights.t()) + 2.0**-39 * smallest


def rows_and_weights(rows: int, units: int, spread: int, device: str) -> tuple[Tensor, Tensor]:
    """Floats, in double: every other unit is 2**spread times as large as its neighbours."""
    sizes = torch.where(torch.arange(units, device=device) % 2 == 0, 2.0**spread, 1.0)
    weights = torch.randn(units, units, device=device) * units**-0.5 * sizes[:, None] / sizes
    return (torch.randn(rows, units, device=device) * sizes).double(), weights.double()


@needs_gpu
@pytest.mark.parametrize("spread", [0, 12, 20])
@pytest.mark.parametrize("precision", PARTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_errors_of_products_are_within_the_bound(size, precision, spread):
    """Of a first step, and of its backward pass; sums are rounded, too."""
    steps, count, units = size
    use(precision)
    rows, weights = rows_and_weights(count, units, spread, "cuda")
    h_0 = rows.float().requires_grad_()
    gates = rows.new_zeros(steps, count, units, dtype=torch.float)
    output = recurrent_sequence("rnn_relu", gates, weights.float(), h_0=h_0)[0]
    grad = torch.zeros_like(output)
    grad[0] = torch.randn(count, units, device="cuda")
    (found,) = torch.autograd.grad(output, h_0, grad)
    kept = grad[0].double() * (output[0] > 0)
    for actual, factor, matrix, exact in (
        (output[0], rows, weights, (rows @ weights.t()).relu()),
        (found, kept, weights.t(), kept @ weights),
    ):
        rounding = units * 2.0**-23 * (factor.abs() @ matrix.abs().t())
        allowed = product_bound(factor, matrix, PARTS[precision]) + rounding
        assert ((actual.double() - exact).abs() <= allowed).all()


@needs_gpu
@pytest.mark.parametrize("options", [{}, {"proj_size": 512}], ids=str)
@pytest.mark.parametrize("size", [(3, 40, 2400), (2, 3, 700)], ids=str)
def test_products_of_torch_have_another_setting(size, options, monkeypatch):
    """Which is none of a layer's: of steps, of small products over all steps, and of biases."""
    steps, rows, hidden = size
    layer = lltm_jit.LSTM(hidden, hidden, device="cuda", **options)
    x = torch.randn(steps, rows, hidden, device="cuda")
    grad = torch.randn_like(layer(x)[0])
    right = in_double(layer, x, grad)
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    use("ieee")
    assert max(error_of(with_gradients(layer, x, grad), right)) < 2e-6
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
    use("tf32")
    rounded = error_of(with_gradients(layer, x, grad), right)
    assert max(rounded) < 2e-3
    if rows > 16:
        assert rounded[0] > 1e-5


@needs_gpu
@pytest.mark.parametrize("checkpoint", [0, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_backward_keeps_what_forward_read(name, checkpoint):
    layer = LAYERS[name](256, 256, device="cuda", checkpoint=checkpoint)
    x, grad = torch.randn(2, 6, 16, 256, device="cuda")
    found = {}
    for forward, backward in (("tf32", "tf32"), ("tf32", "ieee"), ("ieee", "ieee")):
        use(forward)
        leaf = x.detach().requires_grad_()
        output = layer(leaf)[0]
        use(backward)
        gradients = torch.autograd.grad(output, [leaf, *layer.parameters()], grad)
        found[forward, backward] = bits([output, *gradients])
    assert found["tf32", "tf32"] == found["tf32", "ieee"] != found["ieee", "ieee"]


@needs_gpu
def test_compiled_layers_follow_the_setting():
    layer = lltm_jit.LSTM(256, 256, device="cuda")
    x, grad = torch.randn(2, 4, 16, 256, device="cuda")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = []
    for precision in ("tf32", "ieee", "tf32"):
        use(precision)
        eager = bits(with_gradients(layer, x, grad))
        assert bits(with_gradients(compiled, x, grad)) == eager
        found.append(eager)
    assert found[0] == found[2] != found[1]


@needs_gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rows_are_independent(size):
    steps, rows, hidden = size
    gates = torch.randn(steps, rows, 4 * hidden, device="cuda")
    weight_hh = torch.randn(4 * hidden, hidden, device="cuda") * hidden**-0.5
    use("tf32")
    output = recurrent_sequence("lstm", gates, weight_hh)[0]
    assert bits([output]) == bits([recurrent_sequence("lstm", gates, weight_hh)[0]])
    gates[:, 0] = torch.nan
    others = recurrent_sequence("lstm", gates, weight_hh)[0]
    assert others[:, 0].isnan().all()
    assert bits([others[:, 1:]]) == bits([output[:, 1:]])


@needs_gpu
@pytest.mark.parametrize(
    ("size", "rounds"),
    [
        ((64, 256, 512), False),
        ((65, 33, 129), False),
        ((1, 512, 1024), False),
        ((128, 1024, 1024), True),  # the library's, which does
    ],
)
def test_cells_may_follow_the_setting_of_products(size, rounds, monkeypatch):
    """Large ones do, with errors of torch's products at most; our own products are exact."""
    inputs = cell_inputs(*size, torch.float, "cuda", requires_grad=True)
    exact = [each.requires_grad_() for each in to_double(inputs)]
    right = [each.detach() for each in results_and_gradients(lltm_cell_reference, exact)]
    errors = {}
    for precision in ("ieee", "tf32"):
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
        for cell in (lltm_cell, lltm_cell_reference):
            found = results_and_gradients(cell, inputs)
            errors[precision, cell] = error_of([f.detach() for f in found], right)
    ours, theirs = errors["tf32", lltm_cell], errors["tf32", lltm_cell_reference]
    pairs = zip(ours, theirs, strict=True)
    assert all(f <= max(1.01 * u, 2e-6) for f, u in pairs), (ours, theirs)
    assert (max(ours) > 1e-5) == rounds
    assert max(errors["ieee", lltm_cell]) < 2e-6


def test_projections_tell_their_products_the_setting(monkeypatch):
    """But for the weights' own product, which is exact."""
    told = []

    def spy(*args: Any) -> Tensor:
        told.append(args[3:] == (True,))
        return input_gates(*args)

    monkeypatch.setattr(projection, "input_gates", spy)
    monkeypatch.setattr(projection, "_better_by_steps", lambda *args: False)
    x, h_0, c_0 = torch.randn(3, 2, 4), torch.randn(2, 3), torch.randn(1, 2, 5)
    weights = (torch.randn(20, 4), torch.randn(20, 3), None, None)
    states = (h_0, c_0, torch.ones(3, 2, dtype=torch.uint8), h_0.unsqueeze(0), None)
    how = Pass(kinds=[], reverse=False, tf32=True, every=False, resets=True)
    projection.run_projected(how, (x, *weights), [torch.randn(3, 5)], *states)
    assert told == [False, True, True, True, True]


def test_cpu_is_exact():
    layer = lltm_jit.LSTM(8, 8)
    x, grad = torch.randn(2, 3, 2, 8)
    exact = bits(with_gradients(layer, x, grad))
    use("tf32")
    assert bits(with_gradients(layer, x, grad)) == exact
