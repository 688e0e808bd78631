"""Operators on more than 2^31 elements: what lies behind them is as right as the rest."""

import pytest
import torch
from elementwise_cases import ELEMENTWISE
from op_testing import bits, needs_gpu
from torch import Tensor

from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.stylegan.fma import fma
from lltm_jit.ops.stylegan.grid_sample import grid_sample

pytestmark = [pytest.mark.large, needs_gpu]
SIZE = 2**31 + 17


@pytest.mark.parametrize(
    ("function", "count"),
    [*((case.function, len(case.arguments)) for case in ELEMENTWISE), (fma, 3)],
    ids=[*(case.name for case in ELEMENTWISE), "fma"],
)
def test_elementwise(function, count):
    """The first and the last elements against the same ones alone."""
    inputs = [
        torch.randn(SIZE, device="cuda", dtype=torch.half).requires_grad_() for _ in range(count)
    ]

    def results(*inputs: Tensor) -> list[Tensor]:
        y = function(*inputs)
        return [y.detach(), *torch.autograd.grad(y, inputs, y.detach())]

    whole = results(*inputs)
    for part in (slice(0, 99), slice(2**31 - 50, 2**31 + 17)):
        alone = results(*(tensor.detach()[part].clone().requires_grad_() for tensor in inputs))
        assert bits([tensor[part] for tensor in whole]) == bits(alone)


def test_images_to_sample():
    images = torch.randn(3, 2800, 512, 512, device="cuda", requires_grad=True)
    grid = torch.rand(3, 4, 4, 2, device="cuda") - 0.5
    y = grid_sample(images, grid)
    (grad,) = torch.autograd.grad(y, images, y.detach())
    last = images.detach()[-1:, -9:].clone().requires_grad_()
    alone = grid_sample(last, grid[-1:])
    (grad_alone,) = torch.autograd.grad(alone, last, alone.detach())
    assert images.numel() > 2**31
    assert bits([y[-1:, -9:]]) == bits([alone])
    torch.testing.assert_close(grad[-1:, -9:], grad_alone)  # sums by atomics


def test_samples_of_images():
    images = torch.randn(1, 2800, 4, 4, device="cuda")
    grid = torch.rand(1, 900, 900, 2, device="cuda") * 2 - 1
    y = grid_sample(images, grid)
    assert y.numel() > 2**31
    assert bits([y[:, -3:]]) == bits([grid_sample(images[:, -3:].contiguous(), grid)])


@pytest.mark.parametrize(
    ("cell", "gates", "hidden_size"), [("lstm", 4, 132), ("gru", 3, 176)], ids=["lstm", "gru"]
)
def test_sequences(cell, gates, hidden_size):
    """Both halves are the same sequence, between which the state is set to zero."""
    steps, rows = 4200, 1000
    half = torch.randn(steps // 2, rows, gates * hidden_size, device="cuda", dtype=torch.half)
    inputs = torch.cat([half, half]).requires_grad_()
    assert inputs.numel() > 2**31
    weights = torch.randn(gates * hidden_size, hidden_size, device="cuda") / 64
    control = torch.zeros(steps, rows, dtype=torch.uint8, device="cuda")
    control[steps // 2] = 1
    output, *_ = recurrent_sequence(cell, inputs, weights.half(), control=control)
    (grad,) = torch.autograd.grad(output, inputs, 1e-3 * output.detach())
    for tensor in (output, grad):
        first, second = tensor.detach().split(steps // 2)
        assert first.isfinite().all()
        assert torch.equal(first, second)
