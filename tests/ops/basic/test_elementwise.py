"""The elementwise operators: every dtype, size and value; test_every_operator.py has the rest."""

import re

import pytest
import torch
from elementwise_cases import ELEMENTWISE
from hypothesis import given
from hypothesis import strategies as st
from op_testing import (
    DTYPES,
    EVERY_PATH,
    LAYOUTS,
    assert_accurate,
    for_each,
    refusal,
    taken,
    with_layout,
)
from torch.autograd import gradcheck
from torch.func import vmap

import lltm_jit
from lltm_jit import my_op, native
from lltm_jit.ops import basic

ops = torch.ops.lltm_jit
SHAPES = [(), (0,), (1,), (31,), (33,), (127, 3), (4, 129), (2, 3, 5, 7), (100_003,)]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPOSITE = ["d_sigmoid"]  # these have no derivative and no module of their own
case = for_each("case", ELEMENTWISE)

# Allowed are as many roundings of a result on a CPU, and on a GPU, whose exp has one more; and the
# sizes of what it is a sum of. By default one rounding, two of a gradient, and no sum.
# `python -m lltm_jit new` copies rows.
ROUNDINGS = {
    "my_op gradient": (1, 1),
    "sigmoid": (2, 3),
    "d_sigmoid": (2, 2),
}
PARTS = {
    "my_op": lambda x, y: 3 * x.abs() + y.abs(),
    "sigmoid gradient": torch.sigmoid,  # 1 and s cancel
    "d_sigmoid": torch.sigmoid,
}


def check(case, tensors, gradients=True) -> None:
    """Values and gradients against the reference in float64."""
    inputs = [tensor.detach().requires_grad_(gradients) for tensor in tensors]
    wide = [tensor.detach().double().requires_grad_(gradients) for tensor in tensors]
    actual, exact, baseline = (
        function(*given)
        for function, given in [
            (case.function, inputs), (case.reference, wide), (case.reference, inputs)
        ]
    )  # fmt: skip
    found = [(case.name, actual, exact, baseline)]
    if gradients:
        grads = [
            torch.autograd.grad(result.sum(), leaves)
            for result, leaves in [(actual, inputs), (exact, wide), (baseline, inputs)]
        ]
        found += [(f"{case.name} gradient", *each) for each in zip(*grads, strict=True)]
    for name, *results in found:
        ulps = ROUNDINGS.get(name, (1, 1) if name == case.name else (2, 2))[actual.is_cuda]
        parts = PARTS.get(name, lambda *_: 0)(*(tensor.detach() for tensor in wide))
        assert_accurate(*(result.detach() for result in results), ulps=ulps, parts=parts)


def drawn(case, shape, dtype, device="cpu", scale=4.0):
    return [(scale * torch.randn(shape)).to(device, dtype) for _ in case.arguments]


@pytest.mark.parametrize("shape", SHAPES)
def test_matches_float64(case, shape, dtype, device):
    # Of a derivative that torch computes, the roundings are torch's.
    check(case, drawn(case, shape, dtype, device), gradients=case.name not in COMPOSITE)


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
@given(
    shape=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    layouts=st.lists(st.sampled_from(LAYOUTS), min_size=3, max_size=3),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-4, 1.0, 100.0]),
)
def test_random_shapes_layouts_and_values(case, shape, layouts, dtype, scale):
    tensors = drawn(case, shape, dtype, scale=scale)
    check(case, [with_layout(t, n) for t, n in zip(tensors, layouts, strict=False)], False)


def test_extreme_values(case, dtype, device):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, 90.0, -90.0, 1e4, -1e4, 1e38, -1e38, inf, -inf, nan, 1.0])
    inputs = [x.roll(k).to(device, dtype).requires_grad_() for k in range(len(case.arguments))]
    actual = case.function(*inputs)
    expected = case.reference(*(tensor.double() for tensor in inputs)).to(dtype)
    rtol = 4 * torch.finfo(dtype).eps
    atol = rtol * torch.finfo(dtype).smallest_normal  # a result at -90 may be denormal
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    for gradient in torch.autograd.grad(actual.sum(), inputs):
        assert gradient[actual.isfinite()].isfinite().all()


@EVERY_PATH
def test_the_memory_format_stays(case, path):
    with taken(path, case.family) as device:
        images = drawn(case, (2, 3, 5, 7), torch.float, device)
        images = [t.to(memory_format=torch.channels_last).requires_grad_() for t in images]
        result = case.function(*images)
        gradients = torch.autograd.grad(result, images, torch.ones_like(result))
        for tensor in (result, *(gradients if case.name not in COMPOSITE else ())):
            assert tensor.is_contiguous(memory_format=torch.channels_last)


@EVERY_PATH
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.uint16, torch.uint32, torch.uint64])
def test_integers_wrap_around(dtype, path):
    """Also the unsigned ones in which torch does not compute, and under vmap."""
    with taken(path, "basic") as device:
        x, y = torch.randint(-(2**63), 2**63 - 1, (2, 3, 1037), device=device)
        expected = (3 * x - y).to(dtype)
        x, y = x.to(dtype), y.to(dtype)
        assert torch.equal(my_op(x, y), expected)
        assert torch.equal(vmap(my_op)(x, y), expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex(dtype, device):
    x, y = torch.randn(2, 5, 33, dtype=dtype, device=device)
    torch.testing.assert_close(my_op(x, y), 3 * x - y)
    torch.testing.assert_close(my_op(x.conj(), y), 3 * x.conj() - y)
    assert gradcheck(my_op, torch.randn(2, 3, dtype=torch.complex128).requires_grad_().unbind())


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.complex64, torch.float8_e5m2])
def test_bad_dtype(case, dtype):
    header = native.kernels_directory() / "basic" / f"{case.name}.h"
    numeric = header.exists() and "kIntegers = true" in header.read_text()  # and complex numbers
    if numeric and dtype in (torch.long, torch.complex64):
        return
    wanted = "a numeric dtype" if numeric else "dtype Half, BFloat16, Float or Double"
    names = {torch.long: "Long", torch.bool: "Bool", torch.complex64: "ComplexFloat"}
    got = names.get(dtype, "Float8_e5m2")
    tensors = [torch.zeros(3).to(dtype)] * len(case.arguments)
    expected = f"{case.name}(): expected {case.arguments[0]} to have {wanted}, but got {got}"
    assert refusal(RuntimeError, case.function, *tensors) == expected


def test_inputs_unlike_each_other(case):
    first, *others = case.arguments
    like = torch.zeros(4, 5)
    for other, message in [
        (torch.zeros(4, 1), f"have shape {first}.shape = [4, 5], but got [4, 1]"),
        (torch.zeros(5), f"have shape {first}.shape = [4, 5], but got [5]"),
        (like.half(), f"have the dtype of {first} (Float), but got Half"),
        (like.to("meta"), f"be on the device of {first} (cpu), but got meta"),
    ]:
        if others:
            said = refusal(RuntimeError, case.function, *[like] * len(others), other)
            assert said == f"{case.name}(): expected {others[-1]} to {message}"


def test_bad_input_of_derivatives():
    x, of_sigmoid, of_my_op = torch.zeros(3), ops.sigmoid_backward, ops.my_op_backward
    for function, args, message in [
        (of_sigmoid, [x, torch.zeros(4)], "have shape s.shape = [4], but got [3]"),
        (of_sigmoid, [x.double(), x], "have the dtype of s (Float), but got Double"),
        (of_sigmoid, [x.to("meta"), x], "be on the device of s (cpu), but got meta"),
        (of_my_op, [x.long()], "have a floating-point or complex dtype, but got Long"),
        (of_my_op, [x.bool()], "have a numeric dtype, but got Bool"),
    ]:
        said = refusal(RuntimeError, function, *args)
        assert said == f"{function.__name__}(): expected grad to {message}"


def test_arguments_by_name(case):
    tensors = {name: torch.rand(3) for name in case.arguments}
    assert torch.equal(case.function(**tensors), case.function(*tensors.values()))
    wrong = "missing a required argument|too many positional|got an unexpected keyword"
    for args, named in [((), {}), ([torch.rand(3)] * 4, {}), ((), {**tensors, "other": 1})]:
        with pytest.raises(TypeError, match=rf"^{case.name}\(\): (?:{wrong})"):
            case.function(*args, **named)


def test_each_operator_has_a_row_and_a_description():
    rows = (native.kernels_directory() / "basic" / "operators.h").read_text()
    operators, derivatives = re.split(r"#define LLTM_JIT_\w+\(DO\)", rows)[1:]
    named = re.findall(r"DO\((\w+)", operators)
    named += [f"d_{name}" for name in re.findall(r"DO\((\w+)", derivatives)]
    described = [case.name for case in ELEMENTWISE]  # by the functions of lltm_jit/ops/basic.py
    assert sorted(named) == sorted(described)


def test_an_operator_is_a_public_name_with_a_module(case):
    assert getattr(lltm_jit, case.name) is getattr(lltm_jit.functional, case.name) is case.function
    assert {case.name} <= {*basic.__all__} & {*lltm_jit.__all__} & {*lltm_jit.functional.__all__}
    if case.name not in COMPOSITE:
        name = case.name.title().replace("_", "")
        tensors = case.inputs("cpu")
        assert name in basic.__all__
        assert torch.equal(getattr(lltm_jit, name)()(*tensors), case.function(*tensors))
