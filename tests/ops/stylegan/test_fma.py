"""fma: every dtype, broadcast and transform."""

from __future__ import annotations

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
    seen_by_torch_function,
    with_layout,
)
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jvp, vmap

from lltm_jit.ops.fma import fma

SHAPES = [((), (), ()), ((0,), (1,), (0,)), ((33,), (33,), (33,)), ((127, 3), (3,), (127, 1))]
BROADCAST = [
    ((2, 3, 4, 5), (2, 3, 1, 1), (2, 1, 4, 5)),
    ((5,), (3, 1), (2, 1, 1)),
    ((1, 4), (), (3, 1)),
]


def draw(shapes, dtype=torch.double, device="cpu", requires_grad=True):
    return [torch.randn(s).to(device, dtype).requires_grad_(requires_grad) for s in shapes]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [*SHAPES, *BROADCAST], ids=str)
def test_matches_float64(shapes, dtype, device):
    inputs = draw(shapes, dtype, device)
    a, b, c = [tensor.detach().double().requires_grad_() for tensor in inputs]
    actual, exact = fma(*inputs), a * b + c
    baseline = inputs[0] * inputs[1] + inputs[2]
    sizes = [tensor.detach().abs().requires_grad_() for tensor in (a, b, c)]
    parts = sizes[0] * sizes[1] + sizes[2]
    assert_accurate(actual, exact.detach(), baseline.detach(), parts=parts.detach())
    weight = torch.randn_like(exact)
    gradients = torch.autograd.grad(actual, inputs, weight.to(dtype))
    exact_ones = torch.autograd.grad(exact, [a, b, c], weight.to(dtype).double())
    plain_ones = torch.autograd.grad(baseline, inputs, weight.to(dtype))
    of_parts = torch.autograd.grad(parts, sizes, weight.to(dtype).double().abs())
    # torch rounds each product to the type; assert_accurate() adds float's roundings for parts.
    roundings = torch.finfo(dtype).eps / torch.finfo(torch.promote_types(dtype, torch.float)).eps
    for *of_one, sizes_of_one in zip(gradients, exact_ones, plain_ones, of_parts, strict=True):
        assert_accurate(*of_one, parts=roundings * sizes_of_one)


@pytest.mark.parametrize("device", DEVICES)
def test_16_bit_results_are_rounded_once(device):
    a = torch.tensor([1.0009765625], dtype=torch.half, device=device)  # its square is no half
    assert fma(a, a, -a).item() == (a.double() ** 2 - a.double()).half().item()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout, device):
    a, b, c = (with_layout(torch.randn(33, 31, device=device), layout) for _ in "abc")
    torch.testing.assert_close(fma(a, b, c), a * b + c)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
def test_gradients(shapes, device):
    inputs = draw(shapes, device=device)
    assert gradcheck(fma, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(fma, inputs)


def test_keeps_its_inputs_and_no_product():
    inputs = draw(BROADCAST[0])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        fma(*inputs)
    assert {tensor.data_ptr() for tensor in kept} == {tensor.data_ptr() for tensor in inputs[:2]}


def test_undefined_output_gradient():
    inputs = draw(BROADCAST[0])
    result = NoGradient.apply(fma(*inputs)).sum()
    assert torch.autograd.grad(result, inputs, allow_unused=True) == (None, None, None)


@pytest.mark.parametrize("device", DEVICES)
def test_compile_and_transforms(device):
    assert_same_compiled(fma, draw([(4, 3)] * 3, torch.float, device))
    inputs = draw([(4, 3, 5), (4, 1, 5), (4, 3, 1)], torch.float, device, requires_grad=False)
    torch.testing.assert_close(vmap(fma)(*inputs), fma(*inputs))
    tangents = tuple(torch.randn_like(tensor) for tensor in inputs)
    expected = jvp(lambda a, b, c: a * b + c, tuple(inputs), tangents)
    torch.testing.assert_close(jvp(fma, tuple(inputs), tangents), expected)
    assert fma(*(tensor.to("meta") for tensor in inputs)).shape == (4, 3, 5)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_leaves_the_dtype(device):
    inputs = draw([(3,)] * 3, torch.float, device)
    with torch.autocast(device, torch.bfloat16):
        assert fma(*inputs).dtype == torch.float
        assert fma(*(tensor.half() for tensor in inputs)).dtype == torch.half


@pytest.mark.parametrize("device", DEVICES)
def test_same_bits_nan_and_infinity(device):
    inputs = draw(BROADCAST[0], torch.float, device)
    assert bits([fma(*inputs)]) == bits([fma(*inputs)])
    inf = torch.tensor(torch.inf, device=device)
    assert fma(inf, inf, inf).item() == torch.inf
    assert fma(inf, inf * 0, inf).isnan()


@needs_gpu
def test_cuda_graph():
    inputs = draw(BROADCAST[0], torch.float, "cuda")

    def step():
        result = fma(*inputs)
        return result, *torch.autograd.grad(result.sum(), inputs)

    torch.testing.assert_close(captured_in_graph(step), step(), rtol=0, atol=0)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(RuntimeError) as raised:
        fma(torch.zeros(3, 4), torch.zeros(4), torch.zeros(2, 1))
    assert str(raised.value) == (
        "fma(): expected a, b and c to have shapes that broadcast against each other, "
        "but got [3, 4], [4] and [2, 1]"
    )


def test_what_is_no_tensor():
    with pytest.raises(TypeError) as raised:
        fma(torch.zeros(3), 2.0, torch.zeros(3))
    assert str(raised.value) == "fma(): expected b to be a tensor, but got float"


def test_torch_function_sees_the_operation():
    assert seen_by_torch_function(fma, 3) == [torch.addcmul]
