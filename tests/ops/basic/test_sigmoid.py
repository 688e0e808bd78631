"""sigmoid: every dtype, layout and transform."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jvp, vmap
from torch.library import opcheck

from lltm_jit import Sigmoid, d_sigmoid, sigmoid

ops = torch.ops.lltm_jit
SHAPES = [(), (0,), (1,), (31,), (33,), (127, 3), (4, 129), (2, 3, 5, 7), (100_003,)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_matches_float64(shape, dtype, device):
    x = (4 * torch.randn(shape)).to(device, dtype).requires_grad_()
    s = sigmoid(x)
    ulps = 2 if device == "cpu" else 3  # CUDA's exp has one more
    assert_accurate(s, torch.sigmoid(x.double()), torch.sigmoid(x), ulps=ulps)
    (actual,) = torch.autograd.grad(s.sum(), x)
    exact = torch.sigmoid(x.double()) * (1 - torch.sigmoid(x.double()))
    (baseline,) = torch.autograd.grad(torch.sigmoid(x).sum(), x)
    exact, parts = exact.detach(), torch.sigmoid(x.detach().double())  # 1 and s cancel
    assert_accurate(actual, exact, baseline, ulps=2, parts=parts)
    s = torch.sigmoid(x)
    assert_accurate(d_sigmoid(x), exact, (1 - s) * s, ulps=2, parts=parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16])
def test_any_layout(layout, dtype, device):
    x = with_layout(torch.randn(33, 31).to(device, dtype), layout).requires_grad_()
    torch.testing.assert_close(sigmoid(x), torch.sigmoid(x))
    weight = with_layout(torch.randn(33, 31).to(device, dtype), layout)
    torch.testing.assert_close(
        torch.autograd.grad(sigmoid(x), x, weight), torch.autograd.grad(torch.sigmoid(x), x, weight)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_values_do_not_overflow(dtype, device):
    x = torch.tensor(
        [0.0, -0.0, 90.0, -90.0, 1e4, -1e4, float("inf"), -float("inf"), float("nan")],
        device=device,
        dtype=dtype,
    )
    expected = torch.sigmoid(x.double()).to(dtype)
    rtol = 4 * torch.finfo(dtype).eps
    atol = rtol * torch.finfo(dtype).smallest_normal  # the result at -90 may be denormal
    torch.testing.assert_close(sigmoid(x), expected, rtol=rtol, atol=atol, equal_nan=True)
    leaf = x[:-1].clone().requires_grad_()
    sigmoid(leaf).sum().backward()
    assert leaf.grad.isfinite().all()


def test_small_results_keep_their_precision():
    x = torch.tensor([-80.0, -85.0])
    exact = torch.sigmoid(x.double())
    torch.testing.assert_close(sigmoid(x).double(), exact, rtol=1e-5, atol=0)


@given(
    shape=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-4, 1.0, 100.0]),
)
def test_random_shapes_layouts_and_values(shape, layout, dtype, scale):
    x = with_layout((scale * torch.randn(shape)).to(dtype), layout)
    assert_accurate(sigmoid(x), torch.sigmoid(x.double()), torch.sigmoid(x), ulps=2)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x = torch.randn(3, 4, dtype=torch.double, device=device, requires_grad=True)
    assert gradcheck(sigmoid, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(sigmoid, x)
    assert gradcheck(d_sigmoid, x)
    torch.testing.assert_close(d_sigmoid(x), torch.autograd.grad(torch.sigmoid(x).sum(), x)[0])
    (first,) = torch.autograd.grad(sigmoid(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    s = torch.sigmoid(x.detach())
    torch.testing.assert_close(second, s * (1 - s) * (1 - 2 * s))


@pytest.mark.parametrize("device", DEVICES)
def test_undefined_output_gradient(device):
    x = torch.randn(3, device=device, requires_grad=True)
    result = NoGradient.apply(sigmoid(x)).sum()
    assert torch.autograd.grad(result, x, allow_unused=True) == (None,)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    opcheck(ops.sigmoid.default, (x,))
    opcheck(ops.sigmoid_backward.default, (torch.randn_like(x), torch.sigmoid(x)))
    opcheck(ops.d_sigmoid.default, (x,))


@pytest.mark.parametrize("device", DEVICES)
def test_compile_and_transforms(device):
    torch._dynamo.reset()
    x = torch.randn(3, 4, device=device, requires_grad=True)
    compiled = torch.compile(Sigmoid(), fullgraph=True, backend="aot_eager")
    compiled_d = torch.compile(d_sigmoid, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled_d(x), d_sigmoid(x))
    torch.testing.assert_close(compiled(x), torch.sigmoid(x))
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(torch.sigmoid(x).sum(), x)
    )
    plain = x.detach()
    torch.testing.assert_close(vmap(sigmoid)(plain), torch.sigmoid(plain))
    torch.testing.assert_close(vmap(d_sigmoid)(plain), d_sigmoid(plain))
    torch._C._functorch._set_vmap_fallback_enabled(False)  # which runs an operator once a row
    try:
        torch.testing.assert_close(vmap(ops.d_sigmoid)(plain), d_sigmoid(plain))
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)
    tangent = torch.randn_like(plain)
    torch.testing.assert_close(
        jvp(sigmoid, (plain,), (tangent,)), jvp(torch.sigmoid, (plain,), (tangent,))
    )
    assert sigmoid(plain.to("meta")).shape == plain.shape


@pytest.mark.parametrize("device", DEVICES)
def test_compile_with_inductor(device):
    assert_same_compiled(sigmoid, [torch.randn(4, 3, device=device, requires_grad=True)])


@pytest.mark.parametrize("device", DEVICES)
def test_same_input_same_bits(device):
    x = torch.randn(1001, device=device)
    assert bits([sigmoid(x)]) == bits([sigmoid(x)])


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_leaves_the_dtype(device):
    x = torch.randn(5, 3, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert sigmoid(x).dtype == d_sigmoid(x).dtype == torch.float
        assert sigmoid(x.half()).dtype == torch.half


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensor_on_another_device_than_the_current_one():
    x = torch.randn(5, 3, device="cuda:1")
    actual = sigmoid(x)
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(actual, torch.sigmoid(x))


@needs_gpu
def test_cuda_graph_and_side_stream():
    x = torch.randn(4097, device="cuda", requires_grad=True)

    def step():
        s = sigmoid(x)
        return s, torch.autograd.grad(s.sum(), x)[0]

    captured = captured_in_graph(step)
    torch.testing.assert_close(captured, step(), rtol=0, atol=0)
    actual = on_side_stream(sigmoid, [x.detach()])
    torch.testing.assert_close(actual, sigmoid(x.detach()), rtol=0, atol=0)


FUNCTIONS = [(sigmoid, "sigmoid(): expected x"), (d_sigmoid, "d_sigmoid(): expected z")]


@pytest.mark.parametrize(("function", "begin"), FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.complex64])
def test_bad_dtype(dtype, function, begin):
    names = {torch.long: "Long", torch.bool: "Bool", torch.complex64: "ComplexFloat"}
    with pytest.raises(RuntimeError) as raised:
        function(torch.zeros(3, dtype=dtype))
    assert str(raised.value) == (
        f"{begin} to have dtype Half, BFloat16, Float or Double, but got {names[dtype]}"
    )


@pytest.mark.parametrize(("function", "begin"), FUNCTIONS)
def test_only_dense_tensors(function, begin):
    with pytest.raises(RuntimeError) as raised:
        function(torch.eye(3).to_sparse())
    assert str(raised.value) == f"{begin} to be a dense tensor, but got layout Sparse"


BAD_BACKWARD = {
    "shape": (
        (torch.zeros(3), torch.zeros(4)),
        "sigmoid_backward(): expected grad to have shape s.shape = [4], but got [3]",
    ),
    "dtype": (
        (torch.zeros(3).double(), torch.zeros(3)),
        "sigmoid_backward(): expected grad to have the dtype of s (Float), but got Double",
    ),
    "device": (
        (torch.zeros(3, device="meta"), torch.zeros(3)),
        "sigmoid_backward(): expected grad to be on the device of s (cpu), but got meta",
    ),
}


@pytest.mark.parametrize("case", BAD_BACKWARD)
def test_bad_input_of_backward(case):
    inputs, message = BAD_BACKWARD[case]
    with pytest.raises(RuntimeError) as raised:
        ops.sigmoid_backward(*inputs)
    assert str(raised.value) == message


@pytest.mark.parametrize(("function", "begin"), FUNCTIONS)
@pytest.mark.parametrize(("value", "got"), [(None, "None"), (0.5, "float"), ([1.0], "list")])
def test_what_is_no_tensor(value, got, function, begin):
    with pytest.raises(TypeError) as raised:
        function(value)
    assert str(raised.value) == f"{begin} to be a tensor, but got {got}"


def test_torch_function_sees_the_operator():
    assert seen_by_torch_function(sigmoid, 1) == [torch.ops.lltm_jit.sigmoid]
    assert seen_by_torch_function(d_sigmoid, 1) == [torch.ops.lltm_jit.d_sigmoid]
