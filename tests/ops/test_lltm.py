"""The LLTM cell and layer: every implementation, dtype, layout and transform."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_testing import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    assert_accurate,
    bits,
    captured_in_graph,
    needs_gpu,
    subsets,
    with_layout,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.library import opcheck

import lltm_jit
from lltm_jit.functional import lltm_backward, lltm_cell, lltm_forward
from lltm_jit.ops.lltm import lltm_cell_reference

Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]

ops = torch.ops.lltm_jit
IMPLEMENTATIONS = ["reference", "aten", "fused", "auto"]
# (batch_size, input_size, hidden_size)
SIZES = [
    (0, 3, 4),
    (1, 1, 1),
    (3, 0, 5),
    (2, 3, 0),
    (2, 31, 33),
    (1, 33, 31),
    (33, 32, 32),
    (5, 129, 127),
    (16, 32, 128),
    (127, 5, 129),
]
# On a GPU each tile shape of the kernels with their own products, aligned and not.
GPU_SIZES = [(40, 16, 784), (96, 33, 257), (128, 64, 1024), (96, 63, 1023)]


def make_inputs(
    batch_size: int = 3,
    input_size: int = 5,
    hidden_size: int = 7,
    dtype: torch.dtype = torch.double,
    device: str = "cpu",
    bias: bool = True,
    requires_grad: bool = False,
) -> Inputs:
    def make(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape) * scale).to(device, dtype).requires_grad_(requires_grad)

    width = hidden_size + input_size
    return (
        make(batch_size, input_size),
        make(3 * hidden_size, width, scale=max(width, 1) ** -0.5),
        make(3 * hidden_size) if bias else None,
        make(batch_size, hidden_size),
        make(batch_size, hidden_size),
    )


def to_double(inputs: Inputs) -> Inputs:
    return tuple(None if t is None else t.detach().double() for t in inputs)  # type: ignore[return-value]


def gradients(function, inputs: Inputs, weight_h: Tensor, weight_c: Tensor) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs if t is not None]
    args = iter(leaves)
    new_h, new_cell = function(*(None if t is None else next(args) for t in inputs))
    loss = (new_h * weight_h.to(new_h)).sum() + (new_cell * weight_c.to(new_cell)).sum()
    return list(torch.autograd.grad(loss, leaves))


# ------------------------------------------------------------------------------------- accuracy --


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_backward_match_float64(sizes, dtype, device, bias):
    check_against_float64(sizes, dtype, device, bias)


@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", GPU_SIZES)
def test_every_tile_shape_matches_float64(sizes, dtype):
    check_against_float64(sizes, dtype, "cuda", bias=True)


def check_against_float64(sizes, dtype, device, bias):
    inputs = make_inputs(*sizes, dtype=dtype, device=device, bias=bias)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    for actual, e, b in zip(lltm_cell(*inputs), exact, baseline, strict=True):
        assert_accurate(actual, e, b, ulps=4)

    weight_h, weight_c = torch.randn(2, *exact[0].shape, dtype=torch.double, device=device)
    weight_h, weight_c = weight_h.to(dtype).double(), weight_c.to(dtype).double()
    exact_grads = gradients(lltm_cell_reference, to_double(inputs), weight_h, weight_c)
    baseline_grads = gradients(lltm_cell_reference, inputs, weight_h, weight_c)
    for actual, e, b in zip(
        gradients(lltm_cell, inputs, weight_h, weight_c), exact_grads, baseline_grads, strict=True
    ):
        assert_accurate(actual, e, b, ulps=16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float, torch.half])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout, dtype, device):
    inputs = make_inputs(33, 31, 40, dtype=dtype, device=device)
    inputs = tuple(with_layout(t, layout) for t in inputs)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    for actual, e, b in zip(lltm_cell(*inputs), exact, baseline, strict=True):
        assert_accurate(actual, e, b, ulps=4)
    ones = torch.ones_like(exact[0])
    exact_grads = gradients(lltm_cell_reference, to_double(inputs), ones, ones)
    baseline_grads = gradients(lltm_cell_reference, inputs, ones, ones)
    for actual, e, b in zip(
        gradients(lltm_cell, inputs, ones, ones), exact_grads, baseline_grads, strict=True
    ):
        assert_accurate(actual, e, b, ulps=16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_implementations_agree(impl, device):
    inputs = make_inputs(6, 9, 11, device=device)
    for actual, expected in zip(
        lltm_cell(*inputs, impl=impl), lltm_cell_reference(*inputs), strict=True
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_cell_kept_in_float(dtype, device):
    input, weights, bias, old_h, old_cell = make_inputs(4, 8, 16, dtype=dtype, device=device)
    old_cell = 1000 * torch.rand(4, 16, device=device)
    inputs = (input, weights, bias, old_h, old_cell)
    new_h, new_cell = lltm_cell(*inputs)
    assert (new_h.dtype, new_cell.dtype) == (dtype, torch.float)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    assert_accurate(new_h, exact[0], baseline[0])
    assert_accurate(new_cell, exact[1], baseline[1])
    grads = gradients(lltm_cell, inputs, torch.ones(4, 16), torch.ones(4, 16))
    assert [g.dtype for g in grads] == [dtype] * 4 + [torch.float]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 100.0, -100.0])
def test_extreme_values(value, device):
    """Overflow and NaN appear exactly where the reference has them, in the gradients too."""
    input, weights, bias, old_h, old_cell = make_inputs(3, 5, 7, dtype=torch.float, device=device)
    for position, tensor in enumerate([bias, old_cell]):
        changed = tensor.clone()
        changed.view(-1)[3] = value
        inputs = [input, weights, bias, old_h, old_cell]
        inputs[[2, 4][position]] = changed
        for actual, expected in zip(lltm_cell(*inputs), lltm_cell_reference(*inputs), strict=True):
            torch.testing.assert_close(actual, expected, equal_nan=True)
        if value in (100.0, -100.0):
            ones = torch.ones_like(old_h)
            for actual, expected in zip(
                gradients(lltm_cell, inputs, ones, ones),
                gradients(lltm_cell_reference, inputs, ones, ones),
                strict=True,
            ):
                torch.testing.assert_close(actual, expected)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(1, 40)),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_random_shapes_layouts_and_values(sizes, layout, dtype, scale):
    inputs = make_inputs(*sizes, dtype=dtype)
    inputs = tuple(with_layout(t * scale, layout) for t in inputs)
    exact = lltm_cell_reference(*to_double(inputs))
    baseline = lltm_cell_reference(*inputs)
    for actual, e, b in zip(lltm_cell(*inputs), exact, baseline, strict=True):
        assert_accurate(actual, e, b, ulps=8)


# ------------------------------------------------------------------------------------ gradients --


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", ["aten", "fused"])
def test_gradcheck(impl, device):
    inputs = make_inputs(device=device, requires_grad=True)

    def function(*args):
        return lltm_cell(*args, impl=impl)

    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("required", subsets(5))
@pytest.mark.parametrize("sizes", [(2, 3, 4), (33, 40, 64)])
def test_gradients_of_every_subset_of_inputs(sizes, required, device):
    inputs = make_inputs(*sizes, device=device)
    if device == "cuda":  # what is not written is then seen
        torch.full((1_000_000,), float("nan"), dtype=torch.double, device=device)
    for tensor, r in zip(inputs, required, strict=True):
        tensor.requires_grad_(r)
    leaves = [t for t in inputs if t.requires_grad]
    actual = torch.autograd.grad(sum(t.sum() for t in lltm_cell(*inputs)), leaves)
    expected = torch.autograd.grad(sum(t.sum() for t in lltm_cell_reference(*inputs)), leaves)
    torch.testing.assert_close(actual, expected)
    new_h, _ = lltm_cell(*inputs)
    first = torch.autograd.grad(new_h.sum(), leaves, create_graph=True, allow_unused=True)
    expected_h, _ = lltm_cell_reference(*inputs)
    expected_first = torch.autograd.grad(
        expected_h.sum(), leaves, create_graph=True, allow_unused=True
    )
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
    expected_second = torch.autograd.grad(sum(g.square().sum() for g in expected_first), leaves)
    torch.testing.assert_close(second, expected_second)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("output", [0, 1])
def test_undefined_output_gradient(output, device):
    inputs = make_inputs(device=device, requires_grad=True)
    actual = torch.autograd.grad(lltm_cell(*inputs)[output].sum(), inputs, allow_unused=True)
    expected = torch.autograd.grad(
        lltm_cell_reference(*inputs)[output].sum(), inputs, allow_unused=True
    )
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if e is None else e)


@pytest.mark.parametrize("shape", [(21,), (1, 21)])
def test_bias_gradient_has_the_shape_of_bias(shape):
    input, weights, bias, old_h, old_cell = make_inputs(requires_grad=True)
    bias = bias.detach().reshape(shape).requires_grad_()
    new_h, _ = lltm_cell(input, weights, bias, old_h, old_cell)
    (grad_bias,) = torch.autograd.grad(new_h.sum(), bias, create_graph=True)
    assert grad_bias.shape == shape
    (again,) = torch.autograd.grad(grad_bias.sum(), bias)
    assert again.shape == shape


def test_backward_twice_needs_retain_graph():
    inputs = make_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    loss = new_h.sum() + new_cell.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_saved_tensor_changed_in_place_is_noticed():
    inputs = make_inputs(requires_grad=True)
    new_h, new_cell = lltm_cell(*inputs)
    with torch.no_grad():
        new_cell.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (new_h.sum() + new_cell.sum()).backward()


# ------------------------------------------------------------------------- low-level and layers --


@pytest.mark.parametrize("device", DEVICES)
def test_tutorial_calls(device):
    inputs = make_inputs(device=device, requires_grad=True)
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


@pytest.mark.parametrize("pair", [tuple, list])
def test_state_as_a_pair(pair):
    input, weights, bias, old_h, old_cell = make_inputs()
    torch.testing.assert_close(
        lltm_cell(input, pair((old_h, old_cell)), weights, bias),
        lltm_cell(input, weights, bias, old_h, old_cell),
    )


@pytest.mark.parametrize("bias_shape", [(21,), (1, 21)])
def test_state_dict_of_the_tutorial_module_loads(bias_shape):
    weights, bias = torch.randn(21, 12), torch.randn(bias_shape)
    cell = lltm_jit.LLTMCell(5, 7)
    cell.load_state_dict({"weights": weights, "bias": bias})
    torch.testing.assert_close(cell.weights.detach(), weights)
    torch.testing.assert_close(cell.bias.detach(), bias.view(21))
    nested = torch.nn.ModuleDict({"rnn": lltm_jit.LLTMCell(5, 7)})
    nested.load_state_dict({"rnn.weights": weights, "rnn.bias": bias})
    torch.testing.assert_close(nested["rnn"].bias.detach(), bias.view(21))


def test_cell_module():
    torch.manual_seed(0)
    cell = lltm_jit.LLTMCell(5, 16)
    assert [(name, tuple(p.shape)) for name, p in cell.named_parameters()] == [
        ("weights", (48, 21)),
        ("bias", (48,)),
    ]
    assert all(p.abs().max() <= 0.25 for p in cell.parameters())
    assert cell.weights.abs().max() > 0.2
    input = torch.randn(3, 5)
    zeros = torch.zeros(3, 16)
    torch.testing.assert_close(cell(input), cell(input, (zeros, zeros)))
    assert lltm_jit.LLTMCell(5, 7, bias=False).bias is None
    torch.testing.assert_close(copy.deepcopy(cell)(input), cell(input))
    torch.testing.assert_close(pickle.loads(pickle.dumps(cell))(input), cell(input))
    assert repr(cell) == "LLTMCell(5, 16, bias=True)"
    with pytest.raises(ValueError, match=r"expected impl to be one of .* but got 'fast'"):
        lltm_jit.LLTMCell(5, 7, impl="fast")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_layer_is_called_like_lstm(batch_first, device):
    layer = lltm_jit.LLTM(5, 7, batch_first=batch_first, device=device)
    lstm = torch.nn.LSTM(5, 7, batch_first=batch_first, device=device)
    input = torch.randn((2, 4, 5) if batch_first else (4, 2, 5), device=device)
    state = (torch.randn(1, 2, 7, device=device), torch.randn(1, 2, 7, device=device))
    for args in ((input,), (input, state), (input[0] if batch_first else input[:, 0],)):
        output, (h, c) = layer(*args)
        expected, (expected_h, expected_c) = lstm(*args)
        assert (output.shape, h.shape, c.shape) == (
            expected.shape,
            expected_h.shape,
            expected_c.shape,
        )
    h, c = state[0][0], state[1][0]
    steps = input.unbind(1 if batch_first else 0)
    for step in steps:
        h, c = lltm_cell_reference(step, layer.cell.weights, layer.cell.bias, h, c)
    output, (h_n, c_n) = layer(input, state)
    torch.testing.assert_close((h_n[0], c_n[0]), (h, c))
    torch.testing.assert_close(output[:, -1] if batch_first else output[-1], h)


def test_layer_keeps_the_running_cell_in_float():
    """A bfloat16 sum of 400 small steps stalls; the layer's does not."""
    layer = lltm_jit.LLTM(1, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.cell.weights.zero_()
        layer.cell.bias.zero_()
        layer.cell.bias[8:] = 0.25  # each step adds sigmoid(0) * 0.25 = 0.125
    _, (_, c) = layer(torch.zeros(400, 1, 1, dtype=torch.bfloat16))
    assert c.dtype == torch.bfloat16
    torch.testing.assert_close(c.float(), torch.full((1, 1, 4), 50.0))


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2, 5)])
def test_layer_refuses_other_ranks(shape):
    with pytest.raises(ValueError, match=f"expected input to have 2 or 3 dim.* got {len(shape)}"):
        lltm_jit.LLTM(5, 7)(torch.zeros(shape))
    with pytest.raises(ValueError, match="at least one step"):
        lltm_jit.LLTM(5, 7)(torch.zeros(0, 2, 5))


# ------------------------------------------------------------------------- the rest of PyTorch --


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    inputs = make_inputs(device=device, requires_grad=True)
    opcheck(ops.lltm_cell.default, inputs)
    opcheck(ops.lltm_cell_aten.default, inputs)
    plain = tuple(t.detach() for t in inputs)
    opcheck(ops.lltm_cell_forward.default, plain)
    new_h, new_cell, gates = ops.lltm_cell_forward(*plain)
    for mask in ([True] * 5, [False, True, False, True, False]):
        args = (torch.randn_like(new_h), None, *plain, new_cell, gates, mask)
        opcheck(ops.lltm_cell_backward.default, args)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_compile_fullgraph(impl, device):
    torch._dynamo.reset()
    inputs = make_inputs(dtype=torch.float, device=device, requires_grad=True)

    def loss(*args):
        return sum(t.square().sum() for t in lltm_cell(*args, impl=impl))

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), loss(*inputs))
    torch.testing.assert_close(
        torch.autograd.grad(compiled(*inputs), inputs), torch.autograd.grad(loss(*inputs), inputs)
    )


def test_compile_with_inductor():
    torch._dynamo.reset()
    layer = lltm_jit.LLTM(5, 7)
    compiled = torch.compile(layer, fullgraph=True)
    input = torch.randn(3, 2, 5)
    torch.testing.assert_close(compiled(input)[0], layer(input)[0])
    parameters = list(layer.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(compiled(input)[0].square().sum(), parameters),
        torch.autograd.grad(layer(input)[0].square().sum(), parameters),
    )


def test_export_keeps_the_op_whole():
    cell = lltm_jit.LLTMCell(5, 7)
    args = (torch.randn(3, 5), (torch.randn(3, 7), torch.randn(3, 7)))
    program = torch.export.export(cell, args)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert ops.lltm_cell.default in targets
    torch.testing.assert_close(program.module()(*args), cell(*args))


@pytest.mark.parametrize("device", DEVICES)
def test_vmap(device):
    input, weights, bias, old_h, old_cell = make_inputs(device=device)
    stacked = [torch.stack([t, 2 * t, -t]) for t in (input, weights, bias, old_h, old_cell)]
    plain = (input, weights, bias, old_h, old_cell)
    for batched in subsets(5):
        args = [s if b else p for s, p, b in zip(stacked, plain, batched, strict=True)]
        in_dims = tuple(0 if b else None for b in batched)
        actual = vmap(lltm_cell, in_dims=in_dims)(*args)
        rows = [
            lltm_cell(*(a[i] if b else a for a, b in zip(args, batched, strict=True)))
            for i in range(3)
        ]
        for a, e in zip(actual, zip(*rows, strict=True), strict=True):
            torch.testing.assert_close(a, torch.stack(e))


@pytest.mark.parametrize("device", DEVICES)
def test_per_sample_gradients(device):
    cell = lltm_jit.LLTMCell(5, 7, device=device, dtype=torch.double)
    input = torch.randn(4, 5, device=device, dtype=torch.double)

    def loss(parameters, sample):
        new_h, new_cell = functional_call(cell, parameters, (sample[None],))
        return new_h.sum() + new_cell.square().sum()

    parameters = {k: v.detach() for k, v in cell.named_parameters()}
    actual = vmap(grad(loss), in_dims=(None, 0))(parameters, input)
    for i, sample in enumerate(input):
        for name, expected in grad(loss)(parameters, sample).items():
            torch.testing.assert_close(actual[name][i], expected)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("position", [0, 1])
def test_derivatives_of_derivatives(position, steps):
    """Levels of torch.func inside each other, with a loss that is not linear in the results."""
    inputs = make_inputs(2, 3, 2)

    def loss_of(function):
        def loss(tensor):
            args = list(inputs)
            args[position] = tensor
            input, weights, bias, h, c = args
            for _ in range(steps):
                h, c = function(input, weights, bias, h, c)
            return h.square().sum() + c.pow(3).sum()

        return loss

    for transform in (
        hessian,
        lambda f: jacrev(jacrev(f)),
        lambda f: jacfwd(jacfwd(f)),
        lambda f: grad(lambda t: grad(f)(t).square().sum()),
    ):
        torch.testing.assert_close(
            transform(loss_of(lltm_cell))(inputs[position]),
            transform(loss_of(lltm_cell_reference))(inputs[position]),
        )


def test_jvp():
    inputs = make_inputs()
    tangents = tuple(torch.randn_like(t) for t in inputs)
    actual = jvp(lltm_cell, inputs, tangents)
    expected = jvp(lltm_cell_reference, inputs, tangents)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", ["aten", "fused"])
def test_autocast(impl, device):
    inputs = make_inputs(dtype=torch.float, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        new_h, new_cell = lltm_cell(*inputs, impl=impl)
        # The state goes round: a half hidden state, a float cell.
        again_h, again_cell = lltm_cell(*inputs[:3], new_h, new_cell, impl=impl)
    assert (new_h.dtype, new_cell.dtype) == (torch.bfloat16, torch.float)
    assert (again_h.dtype, again_cell.dtype) == (torch.bfloat16, torch.float)
    torch.testing.assert_close(
        new_h.float(), lltm_cell(*inputs)[0], rtol=0, atol=0.05, check_dtype=False
    )
    grads = torch.autograd.grad(again_h.float().sum() + again_cell.sum(), inputs)
    assert all(g.dtype == torch.float for g in grads)


@pytest.mark.parametrize("device", DEVICES)
def test_backward_inside_autocast_stays_in_the_dtype_of_the_forward(device):
    inputs = make_inputs(dtype=torch.float, device=device, requires_grad=True)
    new_h, _ = lltm_cell(*inputs)
    expected = torch.autograd.grad(new_h.sum(), inputs, retain_graph=True)
    with torch.autocast(device, torch.bfloat16):
        actual = torch.autograd.grad(new_h.sum(), inputs)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_meta_device_agrees_with_the_kernels(device):
    def forward_and_backward(device):
        inputs = make_inputs(dtype=torch.half, device=device, requires_grad=True)
        results = lltm_cell(*inputs)
        return [*results, *torch.autograd.grad(results[0].sum(), inputs)]

    for meta, real in zip(forward_and_backward("meta"), forward_and_backward(device), strict=True):
        assert (meta.shape, meta.stride(), meta.dtype) == (real.shape, real.stride(), real.dtype)
        assert meta.device.type == "meta"


@pytest.mark.parametrize("device", DEVICES)
def test_same_input_same_bits(device):
    inputs = make_inputs(65, 33, 129, dtype=torch.float, device=device, requires_grad=True)

    def run():
        new_h, new_cell = lltm_cell(*inputs)
        grads = torch.autograd.grad(new_h.square().sum() + new_cell.sum(), inputs)
        return bits([new_h, new_cell, *grads])

    assert run() == run()


@needs_gpu
def test_batch_past_the_grid_limit():
    inputs = make_inputs(70_000, 2, 3, dtype=torch.float, device="cuda", requires_grad=True)
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
    inputs = make_inputs(64, 256, 512, dtype=torch.float, device="cuda")
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
    inputs = make_inputs(16, 32, 128, dtype=torch.float, device="cuda", requires_grad=True)

    def step():
        new_h, new_cell = lltm_cell(*inputs)
        return new_h, new_cell, *torch.autograd.grad(new_h.sum() + new_cell.sum(), inputs)

    captured = captured_in_graph(step)
    torch.testing.assert_close(captured, step(), rtol=0, atol=0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensor_on_another_device_than_the_current_one():
    inputs = make_inputs(dtype=torch.float, device="cuda:1")
    actual = lltm_cell(*inputs)
    assert torch.cuda.current_device() == 0
    assert actual[0].device.index == 1
    torch.testing.assert_close(actual, lltm_cell_reference(*inputs))


# ------------------------------------------------------------------------------------- bad input --

SHAPED = "lltm_cell(): expected {} to have shape {} = {}, but got {}"
BAD_INPUTS = {
    "input rank": (
        {"input": torch.zeros(5)},
        "lltm_cell(): expected input to have 2 dimensions [batch_size, input_size], "
        "but got shape [5]",
    ),
    "old_h rank": (
        {"old_h": torch.zeros(3, 7, 1)},
        "lltm_cell(): expected old_h to have 2 dimensions [batch_size, hidden_size], "
        "but got shape [3, 7, 1]",
    ),
    "old_h batch": (
        {"old_h": torch.zeros(2, 7)},
        SHAPED.format("old_h", "[batch_size, hidden_size]", "[3, 7]", "[2, 7]"),
    ),
    "old_cell size": (
        {"old_cell": torch.zeros(3, 8)},
        SHAPED.format("old_cell", "[batch_size, hidden_size]", "[3, 7]", "[3, 8]"),
    ),
    "weights size": (
        {"weights": torch.zeros(21, 11)},
        SHAPED.format("weights", "[3*hidden_size, hidden_size+input_size]", "[21, 12]", "[21, 11]"),
    ),
    "bias size": (
        {"bias": torch.zeros(20)},
        SHAPED.format("bias", "[3*hidden_size]", "[21]", "[20]"),
    ),
    "bias rows": (
        {"bias": torch.zeros(3, 21)},
        SHAPED.format("bias", "[1, 3*hidden_size]", "[1, 21]", "[3, 21]"),
    ),
    "integer dtype": (
        {"input": torch.zeros(3, 5, dtype=torch.long)},
        "lltm_cell(): expected input to have dtype Half, BFloat16, Float or Double, but got Long",
    ),
    "dtype mix": (
        {"weights": torch.zeros(21, 12, dtype=torch.double)},
        "lltm_cell(): expected weights to have the dtype of input (Float), but got Double",
    ),
    "cell dtype": (
        {"old_cell": torch.zeros(3, 7, dtype=torch.double)},
        "lltm_cell(): expected old_cell to have the dtype of input (Float), but got Double",
    ),
    "device mix": (
        {"weights": torch.zeros(21, 12, device="meta")},
        "lltm_cell(): expected weights to be on the device of input (cpu), but got meta",
    ),
}


@pytest.mark.parametrize("impl", ["aten", "fused"])
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input(case, impl):
    changes, message = BAD_INPUTS[case]
    names = ("input", "weights", "bias", "old_h", "old_cell")
    inputs = dict(zip(names, make_inputs(dtype=torch.float), strict=True))
    with pytest.raises(RuntimeError) as raised:
        lltm_cell(**{**inputs, **changes}, impl=impl)
    assert str(raised.value) == message


@needs_gpu
def test_bad_device_mix_on_a_gpu():
    inputs = list(make_inputs(dtype=torch.float))
    inputs[1] = inputs[1].cuda()
    with pytest.raises(RuntimeError) as raised:
        lltm_cell(*inputs)
    assert str(raised.value) == (
        "lltm_cell(): expected weights to be on the device of input (cpu), but got cuda:0"
    )


BAD_BACKWARD = {
    "grad_h": (
        {"grad_h": torch.zeros(1, 1)},
        "lltm_cell_backward(): expected grad_h to have shape [batch_size, hidden_size] = [3, 7], "
        "but got [1, 1]",
    ),
    "gates": (
        {"gates": torch.zeros(3, 7)},
        "lltm_cell_backward(): expected gates to have shape [batch_size, 3*hidden_size] = [3, 21], "
        "but got [3, 7]",
    ),
    "no bias": (
        {"bias": None},
        "lltm_cell_backward(): output_mask asks for the gradient of bias, but bias is None",
    ),
}


@pytest.mark.parametrize("case", BAD_BACKWARD)
def test_bad_input_of_backward(case):
    changes, message = BAD_BACKWARD[case]
    input, weights, bias, old_h, old_cell = make_inputs(dtype=torch.float)
    new_h, new_cell, gates = ops.lltm_cell_forward(input, weights, bias, old_h, old_cell)
    args = {
        "grad_h": new_h,
        "grad_cell": new_cell,
        "input": input,
        "weights": weights,
        "bias": bias,
        "old_h": old_h,
        "old_cell": old_cell,
        "new_cell": new_cell,
        "gates": gates,
        "output_mask": [True] * 5,
    }
    with pytest.raises(RuntimeError) as raised:
        ops.lltm_cell_backward(**{**args, **changes})
    assert str(raised.value) == message


def test_state_given_twice():
    input, weights, bias, old_h, old_cell = make_inputs()
    with pytest.raises(TypeError, match="got old_cell beside a state pair"):
        lltm_cell(input, (old_h, old_cell), weights, bias, old_cell)


def test_unknown_implementation():
    with pytest.raises(ValueError, match="expected impl to be one of") as raised:
        lltm_cell(*make_inputs(), impl="fast")
    assert str(raised.value) == (
        "lltm_cell(): expected impl to be one of ('auto', 'reference', 'aten', 'fused'), "
        "but got 'fast'"
    )
