"""fma: every dtype, broadcast and transform."""

import pytest
import torch
from op_testing import assert_accurate, refusal

from lltm_jit.ops.fma import fma

SHAPES = [((), (), ()), ((0,), (1,), (0,)), ((33,), (33,), (33,)), ((127, 3), (3,), (127, 1))]
BROADCAST = [
    ((2, 3, 4, 5), (2, 3, 1, 1), (2, 1, 4, 5)),
    ((5,), (3, 1), (2, 1, 1)),
    ((1, 4), (), (3, 1)),
]


def draw(shapes, dtype=torch.double, device="cpu", requires_grad=True):
    return [torch.randn(s).to(device, dtype).requires_grad_(requires_grad) for s in shapes]


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


def test_16_bit_results_are_rounded_once(device):
    a = torch.tensor([1.0009765625], dtype=torch.half, device=device)  # its square is no half
    assert fma(a, a, -a).item() == (a.double() ** 2 - a.double()).half().item()


def test_keeps_its_inputs_and_no_product():
    inputs = draw(BROADCAST[0])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        fma(*inputs)
    assert {tensor.data_ptr() for tensor in kept} == {tensor.data_ptr() for tensor in inputs[:2]}


def test_nan_and_infinity(device):
    inf = torch.tensor(torch.inf, device=device)
    assert fma(inf, inf, inf).item() == torch.inf
    assert fma(inf, inf * 0, inf).isnan()


def test_shapes_that_do_not_broadcast():
    message = refusal(RuntimeError, fma, torch.zeros(3, 4), torch.zeros(4), torch.zeros(2, 1))
    assert "(2) must match the size of tensor b (3)" in message
