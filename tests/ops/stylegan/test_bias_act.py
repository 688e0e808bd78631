"""bias_act: every activation, dtype, rank, layout and transform."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from op_testing import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    NoGradient,
    assert_accurate,
    assert_same_compiled,
    bits,
    captured_in_graph,
    needs_gpu,
    on_side_stream,
    seen_by_torch_function,
    with_layout,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jvp, vmap
from torch.library import opcheck

from lltm_jit import native
from lltm_jit.ops.bias_act import BiasAct, activation_funcs, bias_act
from lltm_jit.ops.stylegan import implementation

ops = torch.ops.lltm_jit
ACTS = list(activation_funcs)
STRAIGHT = ("linear", "relu", "lrelu")
CLAMPS = [None, 0.7]
# (shape, dim): ranks 1 to 6; channels that are last or not, packs that runs of one fill or not, and
# sums of one part or of several.
SHAPES = [
    ((7,), 0),
    ((0, 4), 1),
    ((33, 64), 1),
    ((31, 3), -1),
    ((3, 1, 9), 1),
    ((2, 8, 4, 4), 1),
    ((5, 3, 7, 9), 1),
    ((2, 3, 5, 130), -2),
    ((2, 3, 4, 5, 6), 2),
    ((2, 3, 1, 4, 5, 6), 0),
    ((9000, 24), 1),
    ((3, 2, 120, 127), 1),
]


def make(shape, dim, dtype, device, scale=1.5):
    x = (scale * torch.randn(shape)).to(device, dtype)
    return x.requires_grad_(), torch.randn(shape[dim]).to(device, dtype).requires_grad_()


def exactly(x: Tensor, b: Tensor, dim: int, act: str, clamp: float | None):
    """The result and the gradients of its weighted sum, in double, from what the dtype holds."""
    x, b = (t.detach().double().requires_grad_() for t in (x, b))
    return x, b, bias_act(x, b, dim, act, clamp=clamp, impl="ref")


def undecided(y: Tensor, clamp: float | None, dtype: torch.dtype) -> Tensor:
    """Where rounding decides whether a result is clamped."""
    if clamp is None:
        return torch.zeros_like(y, dtype=torch.bool)
    return (y.detach().abs() - clamp).abs() < 4 * torch.finfo(dtype).eps * clamp


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("act", ACTS)
def test_matches_float64(act, dtype, clamp, device):
    torch.manual_seed(0)
    for shape, dim in SHAPES:
        x, b = make(shape, dim, dtype, device)
        y = bias_act(x, b, dim, act, clamp=clamp)
        exact_x, exact_b, exact = exactly(x, b, dim, act, clamp)
        baseline = bias_act(x, b, dim, act, clamp=clamp, impl="ref")
        assert_accurate(y.detach(), exact.detach(), baseline.detach(), ulps=2)
        weight = torch.randn(shape).to(device, dtype)
        weight = weight.masked_fill(undecided(exact, clamp, dtype), 0)
        actual = torch.autograd.grad(y, (x, b), weight)
        wanted = torch.autograd.grad(exact, (exact_x, exact_b), weight.double())
        plain = torch.autograd.grad(baseline, (x, b), weight)
        # A derivative comes from the rounded y, which may be off by a rounding of y / gain.
        scale = max(1.0, weight.abs().max().item() if weight.numel() else 1.0)
        assert_accurate(actual[0], wanted[0], plain[0], ulps=math.ceil(4 * scale))
        ulps = math.ceil(4 * scale * max(1, x.numel() // max(1, b.numel())) ** 0.5)
        if dtype != torch.double:
            assert_accurate(actual[1], wanted[1], plain[1], ulps=ulps, sums=x.numel() > 0)
        else:
            torch.testing.assert_close(actual[1], wanted[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("act", ["lrelu", "swish"])
def test_any_layout(act, device):
    views = [with_layout(torch.randn(4, 6, 10, 8, device=device), layout) for layout in LAYOUTS]
    views += [views[0].contiguous(memory_format=torch.channels_last), views[0].transpose(1, 3)]
    views += [views[0][:, 1:5, ::2], torch.randn(2, 3, 4, 6, 5).transpose(1, 4).to(device)]
    for view in views:
        for dim in range(view.dim()):
            x = view.detach().requires_grad_()
            room = torch.randn(view.size(dim), 2, device=device)
            b = room[:, 0].requires_grad_()
            y = bias_act(x, b, dim, act, clamp=0.9)
            wanted = bias_act(x, b, dim, act, clamp=0.9, impl="ref")
            torch.testing.assert_close(y, wanted)
            weight = with_layout(torch.randn_like(wanted), "strided")
            torch.testing.assert_close(
                torch.autograd.grad(y, (x, b), weight), torch.autograd.grad(wanted, (x, b), weight)
            )


@pytest.mark.parametrize("device", DEVICES)
def test_channels_last_stays(device):
    x = torch.randn(2, 8, 5, 7, device=device).contiguous(memory_format=torch.channels_last)
    assert bias_act(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.half, torch.float])
@pytest.mark.parametrize("act", ACTS)
def test_small_arguments_keep_their_precision(act, dtype, device):
    x = torch.tensor([1e-3, -1e-3, 3e-5, -3e-5], device=device).to(dtype)
    actual, exact = bias_act(x, act=act), bias_act(x.double(), act=act, impl="ref")
    rtol = 6 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        actual.double(), exact, rtol=rtol, atol=1e-7 if dtype.itemsize == 2 else 0
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("act", ACTS)
def test_nan_infinity_and_large_values(act, clamp, dtype, device):
    x = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 90.0, -90.0, 6e4, -6e4] * 3,
        device=device,
        dtype=dtype,
    )
    wanted = bias_act(x.double(), act=act, clamp=clamp, impl="ref").to(dtype)
    rtol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        bias_act(x, act=act, clamp=clamp), wanted, rtol=rtol, atol=1e-30, equal_nan=True
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("act", ACTS)
def test_gradients(act, clamp, device):
    torch.manual_seed(0)
    x, b = make((2, 3, 4), 1, torch.double, device)

    def function(x, b):
        return bias_act(x, b, 1, act, gain=1.3, clamp=clamp)

    assert gradcheck(function, (x, b), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, (x, b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("act", ACTS)
def test_third_derivatives(act, device):
    x, b = make((2, 3, 2), 1, torch.double, device)

    def first(x, b):
        y = bias_act(x, b, 1, act)
        return torch.autograd.grad(y.square().sum(), (x, b), create_graph=True)

    assert gradgradcheck(first, (x, b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("act", "options"),
    [
        ("tanh", {"gain": 0.0}),
        ("lrelu", {"alpha": -0.5}),
        ("lrelu", {"gain": -1.5}),
        ("softplus", {"gain": -0.7, "clamp": 0.5}),
        ("lrelu", {"alpha": 0.0}),
        ("linear", {"clamp": 0.0}),
    ],
)
def test_unusual_numbers(act, options, device):
    x, b = make((3, 4, 5), 1, torch.double, device)
    wanted = bias_act(x, b, act=act, **options, impl="ref")
    actual = bias_act(x, b, act=act, **options)
    torch.testing.assert_close(actual, wanted)
    weight = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(actual, (x, b), weight), torch.autograd.grad(wanted, (x, b), weight)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_tiny_gain_in_half_loses_no_derivative(device):
    x = torch.tensor([1e-3, -1e-3], dtype=torch.half, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(bias_act(x, dim=0, act="lrelu", gain=1e-5).sum() * 1e4, x)
    torch.testing.assert_close(grad, torch.tensor([0.1, 0.02]).half().to(device), rtol=5e-2, atol=0)


def test_a_clamp_that_rounds_still_masks():
    x = torch.full((4,), 3.0, dtype=torch.half, requires_grad=True)
    y = bias_act(x, clamp=0.1)  # as a half 0.09998
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros_like(x))


@pytest.mark.parametrize("device", DEVICES)
def test_undefined_gradients_and_single_inputs(device):
    for act in ("tanh", "swish"):
        x, b = make((3, 4), 1, torch.float, device)
        result = NoGradient.apply(bias_act(x, b, act=act)).sum()
        assert torch.autograd.grad(result, (x, b), allow_unused=True) == (None, None)
        both = torch.autograd.grad(bias_act(x, b, act=act).sum(), (x, b))
        (only_x,) = torch.autograd.grad(bias_act(x, b.detach(), act=act).sum(), x)
        (only_b,) = torch.autograd.grad(bias_act(x.detach(), b, act=act).sum(), b)
        torch.testing.assert_close((only_x, only_b), both)


def test_saves_only_what_is_needed():
    x, b = make((4, 3), 1, torch.float, "cpu")
    for act, count in [("linear", 0), ("lrelu", 1), ("tanh", 1), ("swish", 2)]:
        saved: list[Tensor] = []

        def pack(tensor, saved=saved):
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            bias_act(x, b, act=act)
        assert len(saved) == count


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    x, b = make((2, 3, 4), 1, torch.float, device)
    kind = (1, 4, 0.0, 1.0, 0.5)
    opcheck(ops.bias_act.default, (x, b, *kind))
    grad = torch.randn_like(x)
    opcheck(ops.bias_act_backward.default, (grad, x, None, *kind, [True, True]))
    opcheck(ops.bias_act_second.default, (grad, grad + 1, x, b, 1, 9, 0.0, 1.0, None))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("act", ["lrelu", "swish"])
def test_compile_with_dynamic_shapes(act, device):
    torch._dynamo.reset()
    module = BiasAct(4, act=act, clamp=0.8, device=device)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in [(3, 4, 5), (7, 4, 2)]:
        x = torch.randn(shape, device=device, requires_grad=True)
        torch.testing.assert_close(compiled(x), module(x))
        leaves = (x, module.bias)
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x).sum(), leaves),
            torch.autograd.grad(module(x).sum(), leaves),
        )


@pytest.mark.parametrize("device", DEVICES)
def test_compile_with_inductor(device):
    inputs = [torch.randn(4, 3, device=device, requires_grad=True)]
    assert_same_compiled(lambda x: bias_act(x, act="softplus", clamp=1.5), inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", ["cuda", "ref"])
def test_export(impl, device):
    module = BiasAct(3, act="swish", clamp=1.0, impl=impl, device=device)
    x = torch.randn(2, 3, 4, device=device)
    exported = torch.export.export(module, (x,))
    torch.testing.assert_close(exported.module()(x), module(x))
    names = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert any("lltm_jit" in name for name in names) == (impl == "cuda")


@pytest.mark.parametrize("device", DEVICES)
def test_transforms(device):
    x, b = (t.detach() for t in make((5, 3, 4), 1, torch.float, device))
    for act in ("tanh", "swish"):

        def function(x, b, act=act):
            return bias_act(x, b, 0, act, clamp=0.9)

        bs = torch.randn(5, 3, device=device)
        wanted = torch.stack([function(*row) for row in zip(x, bs, strict=True)])
        torch.testing.assert_close(vmap(function)(x, bs), wanted)
        torch.testing.assert_close(
            vmap(function, (0, None))(x, b), vmap(function)(x, b.expand(5, 3))
        )
        tangents = (torch.randn_like(x), torch.randn_like(b))

        def plain(x, b, act=act):
            return bias_act(x, b, 1, act, clamp=0.9, impl="ref")

        torch.testing.assert_close(
            jvp(lambda x, b, act=act: bias_act(x, b, 1, act, clamp=0.9), (x, b), tangents),
            jvp(plain, (x, b), tangents),
        )
        grads = vmap(torch.func.grad(lambda x, b: function(x, b).sum(), (0, 1)))(x, bs)
        torch.testing.assert_close(grads[1], grads[0].sum(2))
    meta = bias_act(x.to("meta"), b.to("meta"))
    assert meta.shape == x.shape


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_casts_the_bias_to_x(device):
    x = torch.randn(4, 3, device=device).bfloat16()
    b = torch.randn(3, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = bias_act(x, b, act="lrelu")
        assert bias_act(x.float(), b).dtype == torch.float
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, bias_act(x, b.bfloat16(), act="lrelu"))
    assert torch.autograd.grad(y.sum(), b)[0].dtype == torch.float


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(40, 24), (3, 5, 33, 65), (2, 64, 9, 9)])
@pytest.mark.parametrize("dtype", [torch.half, torch.float])
def test_same_bits_again_and_at_an_offset(shape, dtype, device):
    x, b = make(shape, 1, dtype, device)

    def results(x):
        y = bias_act(x, b, act="swish")
        return [y, *torch.autograd.grad(y, (x, b), y.detach())]

    first = bits(results(x))
    assert bits(results(x)) == first
    room = torch.empty(x.numel() + 1, dtype=dtype, device=device)
    offset = room[1:].view_as(x).copy_(x.detach()).requires_grad_()
    assert bits(results(offset)) == first


def test_number_of_threads_changes_no_bit():
    x, b = make((7, 37, 61, 45), 1, torch.half, "cpu")

    def results():
        y = bias_act(x, b, act="tanh")
        return [y, *torch.autograd.grad(y, (x, b), y.detach())]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = bits(results())
        torch.set_num_threads(2)
        assert bits(results()) == one
    finally:
        torch.set_num_threads(threads)


@needs_gpu
def test_cuda_graph_and_side_stream():
    x, b = make((8, 16, 33, 32), 1, torch.half, "cuda")

    def step():
        y = bias_act(x, b, act="lrelu", clamp=1.0)
        return y, *torch.autograd.grad(y.sum(), (x, b))

    torch.testing.assert_close(captured_in_graph(step), step(), rtol=0, atol=0)
    inputs = [x.detach(), b.detach()]
    actual = on_side_stream(lambda x, b: bias_act(x, b, act="tanh"), inputs)
    torch.testing.assert_close(actual, bias_act(*inputs, act="tanh"), rtol=0, atol=0)


@pytest.mark.large
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2**31 // 64 + 1, 64), (2, 3, 2**29)])
def test_beyond_31_bits(shape, device):
    x = torch.full(shape, -1.0, dtype=torch.half, device=device, requires_grad=True)
    b = torch.zeros(shape[1], dtype=torch.half, device=device, requires_grad=True)
    y = bias_act(x, b, act="lrelu", gain=1.0)
    assert y.detach().select(0, -1).eq(torch.tensor(-0.2).half().item()).all()
    (grad,) = torch.autograd.grad(y, b, y.detach() / 2**16)
    wanted = 0.2 * 0.2 * (x.numel() // shape[1]) / 2**16
    assert grad.double().neg().tolist() == pytest.approx([wanted] * shape[1], rel=2e-2)


def test_the_reference_can_be_chosen_for_all():
    x = torch.randn(3, 4)
    with implementation("ref"):
        assert torch.equal(bias_act(x, act="tanh"), torch.tanh(x))
    assert torch.equal(bias_act(x, act="tanh", impl="ref"), torch.tanh(x))


def test_module_and_table():
    module = BiasAct(4, act="lrelu")
    x = torch.randn(2, 4)
    torch.testing.assert_close(module(x), math.sqrt(2) * torch.nn.functional.leaky_relu(x, 0.2))
    assert copy.deepcopy(module).bias.shape == (4,)
    assert BiasAct(4, bias=False).bias is None
    assert "act='lrelu'" in repr(module)
    for name, activation in activation_funcs.items():
        actual = bias_act(x, act=name)
        wanted = activation.def_gain * activation.func(x, alpha=activation.def_alpha)
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("act", ["lrelu", "tanh", "swish"])
def test_formulas_where_there_is_no_kernel(act):
    native.stylegan.register_ops(kernels=False)
    try:
        test_gradients(act, 0.7, "cpu")
        x, b = make((5, 3), 1, torch.bfloat16, "cpu")
        assert_accurate(
            bias_act(x, b, act=act).detach(),
            exactly(x, b, 1, act, None)[2].detach(),
            bias_act(x, b, act=act, impl="ref").detach(),
        )
    finally:
        native.stylegan.register_ops()


X, B = torch.zeros(2, 3, 4), torch.zeros(3)
BAD = {
    "dtype": (
        (X.long(),),
        "expected x to have dtype Half, BFloat16, Float or Double, but got Long",
    ),
    "layout": (
        (torch.eye(3).to_sparse(),),
        "expected x to be a dense tensor, but got layout Sparse",
    ),
    "b dtype": ((X, B.half()), "expected b to have the dtype of x (Float), but got Half"),
    "b device": ((X, B.to("meta")), "expected b to be on the device of x (cpu), but got meta"),
    "b rank": ((X, X), "expected b to have 1 dimensions [channels], but got shape [2, 3, 4]"),
    "b size": ((X, B, 2), "expected b to have shape [x.shape[2]] = [4], but got [3]"),
    "dim": ((X, B, 3), "expected dim to be one of the 3 dimensions of x, but got 3"),
    "clamp": (
        (X, B, 1, "linear", None, None, -1.0),
        "expected clamp to be None or not negative, but got -1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    args, message = BAD[case]
    with pytest.raises(RuntimeError) as raised:
        bias_act(*args)
    assert str(raised.value) == f"bias_act(): {message}"


def test_bad_names_and_what_is_no_tensor():
    with pytest.raises(ValueError, match=r"expected act to be one of 'linear', .* but got 'gelu'"):
        bias_act(X, act="gelu")
    with pytest.raises(ValueError, match="expected impl to be 'cuda' or 'ref', but got 'cpu'"):
        bias_act(X, impl="cpu")
    with pytest.raises(TypeError, match=r"bias_act\(\): expected x to be a tensor, but got list"):
        bias_act([1.0])
    with pytest.raises(TypeError, match="expected b to be a tensor or None, but got float"):
        bias_act(X, 1.0)


BAD_DERIVATIVES = {
    "saved": (
        lambda: ops.bias_act_backward(X, None, None, 1, 4, 0.0, 1.0, None, [True, False]),
        "bias_act_backward(): expected saved to be a tensor, but got None",
    ),
    "gain": (
        lambda: ops.bias_act_backward(X, X, None, 1, 4, 0.0, 0.0, None, [True, False]),
        "bias_act_backward(): expected gain to be another number than 0",
    ),
    "shape": (
        lambda: ops.bias_act_backward(X, B, None, 1, 4, 0.0, 1.0, None, [True, False]),
        "bias_act_backward(): expected saved to have shape grad.shape = [2, 3, 4], but got [3]",
    ),
    "straight": (
        lambda: ops.bias_act_second(X, X, X, None, 1, 3, 0.0, 1.0, None),
        "bias_act_second(): expected act to have a second derivative, but got 3",
    ),
}


@pytest.mark.parametrize("case", BAD_DERIVATIVES)
def test_bad_input_of_derivatives(case):
    call, message = BAD_DERIVATIVES[case]
    with pytest.raises(RuntimeError) as raised:
        call()
    assert str(raised.value) == message


def test_torch_function_sees_the_operator():
    assert seen_by_torch_function(lambda x: bias_act(x), 1)[-1] == ops.bias_act
