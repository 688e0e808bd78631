"""Sequences of more elements than 32 bits count."""

import pytest
import torch
from op_testing import ACTIVATIONS
from sequence_testing import Inputs, all_accurate, cell_of, inputs_of, ours, reference
from torch import Tensor

HIDDEN = 8
CELL = "lstm"
ELEMENTS = cell_of(CELL).gates * HIDDEN  # of the gates of a row


def far_slices(rows: int) -> list[slice]:
    """The ends, and around the 2^31st and 2^32nd element and byte of gates and output."""
    places = {2**power // width for power in (30, 31, 32) for width in (ELEMENTS, HIDDEN)}
    return [slice(max(p - 4, 0), p + 4) for p in sorted({4, *places, rows - 4}) if p < rows]


def with_gradient(function, inputs: Inputs, grad: Tensor) -> list[Tensor]:
    gates = inputs.gates.detach().requires_grad_()
    output, *_ = function(CELL, inputs._replace(gates=gates))
    return [output.detach(), *torch.autograd.grad(output, gates, grad)]


def check(found: list[Tensor], inputs: Inputs, grad: Tensor) -> None:
    exact = with_gradient(reference, inputs.to(torch.double), grad.double())
    usual = with_gradient(reference, inputs, grad)
    all_accurate(found, exact, usual, ulps=2, sums=True, parts=ACTIVATIONS)


@pytest.mark.large
def test_many_rows(device):
    rows = 2**25 + 70
    few = inputs_of(CELL, 3, 1, HIDDEN, torch.half, device)
    states = {"h_0": few.h_0.expand(rows, -1), "c_0": few.c_0.expand(-1, rows, -1)}
    gates = torch.randn(3, rows, ELEMENTS, dtype=torch.half, device=device)
    inputs = few._replace(gates=gates, **states)
    assert inputs.gates.numel() > 2**31
    grad = torch.randn(1, 1, HIDDEN, dtype=torch.half, device=device).expand(3, rows, -1)
    found = with_gradient(ours, inputs, grad)
    for some in far_slices(rows):
        states = {"h_0": inputs.h_0[some], "c_0": inputs.c_0[:, some]}
        part = inputs._replace(gates=gates[:, some], **states)
        check([tensor[:, some] for tensor in found], part, grad[:, some])


@pytest.mark.large
def test_many_steps(device):
    """Each piece that is looked at begins with a reset, and reaches as far as the next one."""
    rows = 33
    steps = 2**31 // (rows * ELEMENTS) + 99
    few = inputs_of(CELL, 1, rows, HIDDEN, torch.half, device)
    pieces = [
        slice(s.start // rows, s.start // rows + 8) for s in far_slices(steps * rows - 9 * rows)
    ]
    control = torch.zeros(steps, rows, dtype=torch.uint8, device=device)
    for piece in pieces:
        control[piece.start] = 1
        control[piece.stop :][:1] = 1
    gates = torch.randn(steps, rows, ELEMENTS, dtype=torch.half, device=device)
    inputs = few._replace(gates=gates, control=control)
    assert gates.numel() > 2**31
    grad = torch.randn(1, rows, HIDDEN, dtype=torch.half, device=device).expand(steps, -1, -1)
    found = with_gradient(ours, inputs, grad)
    for piece in pieces:
        part = inputs._replace(gates=gates[piece], control=control[piece])
        check([tensor[piece] for tensor in found], part, grad[piece])
