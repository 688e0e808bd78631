"""Gradients of recurrent weights: of heads in 16 bits, and of small layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lltm_jit.functional import recurrent_sequence

# Heads, units, steps, rows and directions.
SIZES = [
    (48, 16, 9, 16, 1),
    (5, 24, 7, 3, 2),
    (3, 32, 300, 5, 1),
    (3, 64, 1, 5, 2),
    (2, 72, 5, 5, 1),
    (2, 264, 3, 2, 1),
    (9, 8, 5, 3, 2),
]


def old_states(output: Tensor, h_0: Tensor | None, backwards: list[bool]) -> Tensor:
    """What each step began with."""
    first = torch.zeros_like(output[:1]) if h_0 is None else h_0[None]
    ahead, behind = torch.cat([first, output[:-1]]), torch.cat([output[1:], first])
    count = len(backwards)
    parts = [(behind if b else ahead).chunk(count, 2)[i] for i, b in enumerate(backwards)]
    return torch.cat(parts, 2)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_against_float64(sizes, state, dtype, device):
    """Of the outputs and the gates' gradients as they are: one rounding, and one of each part."""
    heads, units, steps, rows, directions = sizes
    count = directions * heads
    gates = torch.randn(steps, rows, count * 4 * units).to(device, dtype).requires_grad_()
    weights = torch.randn(count, 4 * units, units).div(units).to(device, dtype).requires_grad_()
    h_0 = torch.randn(rows, count * units).to(device, dtype) if state else None
    output, *_ = recurrent_sequence("lstm", gates, weights, h_0=h_0, bidirectional=directions == 2)
    grad = torch.randn(output.shape).to(output)
    grads, found = torch.autograd.grad(output, (gates, weights), grad)
    old = old_states(output, h_0, [False, True][:directions])
    of_grads = grads.double().unflatten(2, (directions, 4, heads, units))
    of_old = old.double().unflatten(2, (directions, heads, units))
    right = torch.einsum("tbdghu,tbdhk->dhguk", of_grads, of_old).reshape(found.shape)
    most = (1 + state) * torch.finfo(dtype).eps * right.abs().max()
    assert (found - right).abs().max() <= most


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("backwards", [[False], [True], [False, True]], ids=str)
@pytest.mark.parametrize(("units", "steps", "rows"), [(4, 5, 3), (20, 1, 6), (24, 31, 33)])
def test_small_layers_against_float64(units, steps, rows, backwards, state, dtype, device):
    """With the bias."""
    count = len(backwards)
    gates = torch.randn(steps, rows, count * 4 * units).to(device, dtype)
    weights = torch.randn(count, 4 * units, units).div(units).to(device, dtype)
    bias = torch.randn(count * 4 * units).to(device, dtype)
    leaves = [leaf.requires_grad_() for leaf in (gates, weights, bias)]
    h_0 = torch.randn(rows, count * units).to(device, dtype) if state else None
    options = {"reverse": backwards[0], "bidirectional": count == 2}
    output, *_ = recurrent_sequence("lstm", *leaves, h_0=h_0, **options)
    grads, found, of_bias = torch.autograd.grad(
        output, leaves, torch.randn(output.shape).to(output)
    )
    old = old_states(output, h_0, backwards).double().unflatten(2, (count, units))
    each = grads.double().unflatten(2, (count, 4 * units))
    right = torch.einsum("tbdg,tbdu->dgu", each, old)
    terms = steps * rows * torch.finfo(torch.float).eps
    most = 2 * torch.finfo(dtype).eps + terms
    assert (found - right).abs().max() <= most * right.abs().max()
    total = grads.double().sum((0, 1))
    assert (of_bias - total).abs().max() <= most * total.abs().max()
