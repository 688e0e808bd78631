"""The gradient of heads' weights in 16 bits, which on a GPU is a product of the package's own."""

from __future__ import annotations

import pytest
import torch
from op_testing import DEVICES

from lltm_jit.functional import recurrent_sequence

# Heads, units, steps, rows and directions: parts of tiles of 16 to 64 units, and several tiles;
# rows that blocks share.
SIZES = [
    (48, 16, 9, 16, 1),
    (5, 24, 7, 3, 2),
    (3, 32, 300, 5, 1),
    (3, 64, 1, 5, 2),
    (2, 72, 5, 5, 1),
    (2, 264, 3, 2, 1),
    (9, 8, 5, 3, 2),
]


@pytest.mark.parametrize("device", DEVICES)
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
    first = torch.zeros_like(output[0]) if h_0 is None else h_0
    old = torch.cat([first[None], output[:-1]])
    if directions == 2:
        half = heads * units
        old = torch.cat([old[..., :half], torch.cat([output[1:], first[None]])[..., half:]], -1)
    of_grads = grads.double().unflatten(2, (directions, 4, heads, units))
    of_old = old.double().unflatten(2, (directions, heads, units))
    right = torch.einsum("tbdghu,tbdhk->dhguk", of_grads, of_old).reshape(found.shape)
    most = (1 + state) * torch.finfo(dtype).eps * right.abs().max()
    assert (found - right).abs().max() <= most
