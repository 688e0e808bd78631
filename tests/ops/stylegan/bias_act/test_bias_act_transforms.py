"""bias_act: transforms, compilers, autocast, bits, and bad input."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from op_testing import DEVICES, refusal

from lltm_jit.ops.bias_act import BiasAct, activation_funcs, bias_act
from lltm_jit.ops.stylegan import implementation

ops = torch.ops.lltm_jit


def make(shape, dim, dtype, device, scale=1.5):
    x = (scale * torch.randn(shape)).to(device, dtype)
    return x.requires_grad_(), torch.randn(shape[dim]).to(device, dtype).requires_grad_()


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
def test_autocast_casts_the_bias_to_x(device):
    x = torch.randn(4, 3, device=device).bfloat16()
    b = torch.randn(3, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = bias_act(x, b, act="lrelu")
        assert bias_act(x.float(), b).dtype == torch.float
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, bias_act(x, b.bfloat16(), act="lrelu"))
    assert torch.autograd.grad(y.sum(), b)[0].dtype == torch.float


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
    x = torch.randn(3, 4, requires_grad=True)
    with implementation("ref"):
        chosen = bias_act(x, act="tanh")
    one, other = bias_act(x, act="tanh", impl="ref"), bias_act(x, act="tanh")
    assert torch.equal(chosen, one)
    assert chosen.grad_fn.name() == one.grad_fn.name() != other.grad_fn.name()


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
    "dtype": ((X.long(),), "x to have dtype Half, BFloat16, Float or Double, but got Long"),
    "layout": ((torch.eye(3).to_sparse(),), "x to be a dense tensor, but got layout Sparse"),
    "b dtype": ((X, B.half()), "b to have the dtype of x (Float), but got Half"),
    "b device": ((X, B.to("meta")), "b to be on the device of x (cpu), but got meta"),
    "b rank": ((X, X), "b to have 1 dimensions [channels], but got shape [2, 3, 4]"),
    "b size": ((X, B, 2), "b to have shape [x.shape[2]] = [4], but got [3]"),
    "dim": ((X, B, 3), "dim to be one of the 3 dimensions of x, but got 3"),
    "clamp": (
        (X, B, 1, "linear", None, None, -1.0),
        "clamp to be None or not negative, but got -1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    args, message = BAD[case]
    assert refusal(RuntimeError, bias_act, *args) == f"bias_act(): expected {message}"


def test_bad_names_and_what_is_no_tensor():
    with pytest.raises(ValueError, match=r"expected act to be one of 'linear', .* but got 'gelu'"):
        bias_act(X, act="gelu")
    with pytest.raises(ValueError, match=r"expected act to be one of 'linear', .* but got \[\]"):
        bias_act(X, act=[])
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
}


@pytest.mark.parametrize("case", BAD_DERIVATIVES)
def test_bad_input_of_derivatives(case):
    call, message = BAD_DERIVATIVES[case]
    assert refusal(RuntimeError, call) == message
