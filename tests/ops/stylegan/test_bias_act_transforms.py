"""bias_act: transforms, compilers, autocast, bits, and bad input."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from op_testing import (
    DEVICES,
    assert_same_compiled,
    assert_threads_change_no_bit,
    bits,
    captured_in_graph,
    needs_gpu,
    on_side_stream,
    seen_by_torch_function,
)
from torch.func import jvp, vmap
from torch.library import opcheck

from lltm_jit.ops.bias_act import BiasAct, activation_funcs, bias_act
from lltm_jit.ops.stylegan import implementation

ops = torch.ops.lltm_jit


def make(shape, dim, dtype, device, scale=1.5):
    x = (scale * torch.randn(shape)).to(device, dtype)
    return x.requires_grad_(), torch.randn(shape[dim]).to(device, dtype).requires_grad_()


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

    assert_threads_change_no_bit(results)


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
    (grad,) = torch.autograd.grad(y, b, y.detach() / 2**10)
    wanted = 0.2 * 0.2 * (x.numel() // shape[1]) / 2**10
    assert grad.double().neg().tolist() == pytest.approx([wanted] * shape[1], rel=5e-3)


def test_the_reference_can_be_chosen_for_all():
    x = torch.randn(3, 4)
    with implementation("ref"):
        chosen = bias_act(x, act="tanh")
    assert torch.equal(chosen, activation_funcs["tanh"].func(x))
    assert torch.equal(chosen, bias_act(x, act="tanh", impl="ref"))


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
