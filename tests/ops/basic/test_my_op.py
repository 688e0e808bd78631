"""my_op: every dtype, layout and transform."""

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
    subsets,
    with_layout,
)
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jvp, vmap
from torch.library import opcheck

from lltm_jit import MyOp, my_op

ops = torch.ops.lltm_jit
SHAPES = [(), (0,), (1,), (31,), (33,), (127, 3), (4, 129), (2, 3, 5, 7), (100_003,)]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def make_inputs(shape=(3, 4), dtype=torch.double, device="cpu", requires_grad=False):
    return tuple(
        torch.randn(shape).to(device, dtype).requires_grad_(requires_grad) for _ in range(2)
    )


def my_op_reference(x, y):
    return 3 * x - y


def parts(x, y):
    """The sizes of what a result is the sum of."""
    return 3 * x.double().abs() + y.double().abs()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_matches_float64(shape, dtype, device):
    x, y = make_inputs(shape, dtype, device)
    exact = my_op_reference(x.double(), y.double())
    assert_accurate(my_op(x, y), exact, my_op_reference(x, y), parts=parts(x, y))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype, device):
    bounds = torch.iinfo(dtype)
    x, y = torch.randint(bounds.min, bounds.max, (2, 1037), dtype=dtype, device=device)
    assert torch.equal(my_op(x, y), my_op_reference(x, y))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.uint16, torch.uint32, torch.uint64])
def test_vmap_of_integers(dtype, device):
    """Also of the unsigned ones in which torch does not compute."""
    x, y = torch.randint(-(2**63), 2**63 - 1, (2, 3, 5), device=device)
    expected = my_op_reference(x, y).to(dtype)
    x, y = x.to(dtype), y.to(dtype)
    assert torch.equal(vmap(my_op)(x, y), expected)
    assert torch.equal(my_op(x, y), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex(dtype, device):
    x, y = torch.randn(2, 5, 33, dtype=dtype, device=device)
    torch.testing.assert_close(my_op(x, y), my_op_reference(x, y))
    torch.testing.assert_close(my_op(x.conj(), y), my_op_reference(x.conj(), y))
    assert gradcheck(my_op, torch.randn(2, 3, dtype=torch.complex128).requires_grad_().unbind())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("other", LAYOUTS)
def test_any_layout(layout, other, device):
    x, y = make_inputs((33, 31), torch.float, device)
    x, y = with_layout(x, layout), with_layout(y, other)
    torch.testing.assert_close(my_op(x, y), my_op_reference(x, y))


@pytest.mark.parametrize("device", DEVICES)
def test_channels_last(device):
    x, y = (
        t.to(memory_format=torch.channels_last) for t in make_inputs((2, 3, 5, 7), device=device)
    )
    z = my_op(x, y)
    assert z.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(z, my_op_reference(x, y))
    opcheck(ops.my_op.default, (x, y))


@given(
    shape=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES + INTEGERS),
)
def test_random_shapes_layouts_and_dtypes(shape, layout, dtype):
    x, y = (with_layout((50 * torch.rand(shape)).to(dtype), layout) for _ in range(2))
    expected = my_op_reference(x, y)
    if dtype in INTEGERS:
        assert torch.equal(my_op(x, y), expected)
    else:
        exact = my_op_reference(x.double(), y.double())
        assert_accurate(my_op(x, y), exact, expected, parts=parts(x, y))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
def test_extreme_values(value, device):
    x = torch.tensor([value, value, 1.0, 0.0], device=device)
    y = torch.tensor([1.0, value, value, value], device=device)
    torch.testing.assert_close(my_op(x, y), my_op_reference(x, y), equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    inputs = make_inputs(device=device, requires_grad=True)
    assert gradcheck(my_op, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(my_op, inputs)
    for required in subsets(2):
        leaves = [t.detach().requires_grad_(r) for t, r in zip(inputs, required, strict=True)]
        my_op(*leaves).sum().backward()
        expected = [
            torch.full_like(t, v) if r else None
            for t, v, r in zip(leaves, (3.0, -1.0), required, strict=True)
        ]
        for leaf, e in zip(leaves, expected, strict=True):
            assert leaf.grad is None if e is None else torch.equal(leaf.grad, e)


@pytest.mark.parametrize("device", DEVICES)
def test_undefined_output_gradient(device):
    inputs = make_inputs(device=device, requires_grad=True)
    result = NoGradient.apply(my_op(*inputs)).sum()
    assert torch.autograd.grad(result, inputs, allow_unused=True) == (None, None)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    inputs = make_inputs(device=device, requires_grad=True)
    opcheck(ops.my_op.default, inputs)
    opcheck(ops.my_op_backward.default, (inputs[0],))


@pytest.mark.parametrize("device", DEVICES)
def test_compile_and_transforms(device):
    torch._dynamo.reset()
    inputs = make_inputs(device=device, requires_grad=True)
    compiled = torch.compile(MyOp(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), my_op_reference(*inputs))
    grads = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    torch.testing.assert_close(grads, torch.autograd.grad(my_op(*inputs).sum(), inputs))
    x, y = (t.detach() for t in inputs)
    torch.testing.assert_close(
        vmap(my_op, in_dims=(0, None))(x, y[0]), 3 * x - y[0], check_device=False
    )
    torch.testing.assert_close(jvp(my_op, (x, y), (y, x))[1], 3 * y - x)
    assert my_op(x.to("meta"), y.to("meta")).shape == x.shape


@pytest.mark.parametrize("device", DEVICES)
def test_compile_with_inductor(device):
    assert_same_compiled(my_op, make_inputs((4, 3), torch.float, device, requires_grad=True))


@pytest.mark.parametrize("device", DEVICES)
def test_same_input_same_bits(device):
    inputs = make_inputs((1001,), torch.float, device)
    assert bits([my_op(*inputs)]) == bits([my_op(*inputs)])


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_leaves_the_dtype(device):
    x = torch.randn(5, 3, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert my_op(x, x.flip(0)).dtype == torch.float
        assert my_op(x.half(), x.half()).dtype == torch.half


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensor_on_another_device_than_the_current_one():
    x = torch.randn(5, 3, device="cuda:1")
    actual = my_op(x, x.flip(0))
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(actual, my_op_reference(x, x.flip(0)))


@needs_gpu
def test_cuda_graph_and_side_stream():
    inputs = make_inputs((4097,), torch.float, "cuda")
    expected = my_op(*inputs)
    torch.testing.assert_close(captured_in_graph(lambda: (my_op(*inputs),))[0], expected)
    actual = on_side_stream(my_op, inputs)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


BAD_INPUTS = {
    "shape": (
        (torch.zeros(4, 5), torch.zeros(4, 1)),
        "my_op(): expected y to have shape x.shape = [4, 5], but got [4, 1]",
    ),
    "rank": (
        (torch.zeros(4, 5), torch.zeros(5)),
        "my_op(): expected y to have shape x.shape = [4, 5], but got [5]",
    ),
    "dtype": (
        (torch.zeros(3), torch.zeros(3, dtype=torch.half)),
        "my_op(): expected y to have the dtype of x (Float), but got Half",
    ),
    "layout": (
        (torch.eye(3).to_sparse(), torch.eye(3)),
        "my_op(): expected x to be a dense tensor, but got layout Sparse",
    ),
    "bool": (
        (torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)),
        "my_op(): expected x to have a numeric dtype, but got Bool",
    ),
    "float8": (
        (torch.zeros(3).to(torch.float8_e5m2), torch.zeros(3).to(torch.float8_e5m2)),
        "my_op(): expected x to have a numeric dtype, but got Float8_e5m2",
    ),
    "device": (
        (torch.zeros(3), torch.zeros(3, device="meta")),
        "my_op(): expected y to be on the device of x (cpu), but got meta",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input(case):
    inputs, message = BAD_INPUTS[case]
    with pytest.raises(RuntimeError) as raised:
        my_op(*inputs)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("grad", "message"),
    [
        (torch.zeros(3, dtype=torch.long), "a floating-point or complex dtype, but got Long"),
        (torch.zeros(3, dtype=torch.bool), "a numeric dtype, but got Bool"),
    ],
)
def test_bad_input_of_backward(grad, message):
    with pytest.raises(RuntimeError) as raised:
        ops.my_op_backward(grad)
    assert str(raised.value) == f"my_op_backward(): expected grad to have {message}"


@pytest.mark.parametrize(("value", "got"), [(None, "None"), (3, "int"), ([1.0], "list")])
def test_what_is_no_tensor(value, got):
    for name, inputs in {"x": (value, torch.zeros(1)), "y": (torch.zeros(1), value)}.items():
        with pytest.raises(TypeError) as raised:
            my_op(*inputs)
        assert str(raised.value) == f"my_op(): expected {name} to be a tensor, but got {got}"


def test_torch_function_sees_the_operator():
    assert seen_by_torch_function(my_op, 2) == [torch.ops.lltm_jit.my_op]
