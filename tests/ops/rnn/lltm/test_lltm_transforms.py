"""The LLTM cell under torch.func."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from lltm_testing import IMPLEMENTATIONS, cell_inputs
from op_testing import DEVICES
from torch.func import functional_call, grad, stack_module_state, vmap

import lltm_jit
from lltm_jit.functional import lltm_cell
from lltm_jit.ops.rnn.lltm import lltm_cell_reference


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_vmap_runs_once_for_the_whole_batch(impl, device):
    """And not once a sample, as torch does for operators that it knows no rule for."""
    inputs = [torch.stack([t, 2 * t]) for t in cell_inputs(device=device)]
    cell = partial(lltm_cell, impl=impl)
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        actual = vmap(cell)(*inputs)
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)
    torch.testing.assert_close(actual, vmap(lltm_cell_reference)(*inputs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_per_sample_gradients(impl, device):
    cell = lltm_jit.LLTMCell(5, 7, device=device, dtype=torch.double, impl=impl)
    input = torch.randn(4, 5, device=device, dtype=torch.double)

    def loss(parameters, sample):
        new_h, new_cell = functional_call(cell, parameters, (sample[None],))
        return new_h.sum() + new_cell.square().sum()

    parameters = {k: v.detach() for k, v in cell.named_parameters()}
    actual = vmap(grad(loss), in_dims=(None, 0))(parameters, input)
    for i, sample in enumerate(input):
        for name, expected in grad(loss)(parameters, sample).items():
            torch.testing.assert_close(actual[name][i], expected)


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_over_other_dimensions_and_twice(device):
    input, weights, bias, *_ = cell_inputs(device=device)
    states = torch.randn(2, 3, 4, 7, 2, dtype=torch.double, device=device)  # (h or c, B, n, H, m)
    over_last = vmap(lltm_cell, in_dims=(None, None, None, 2, 2), out_dims=1)
    over_both = vmap(over_last, in_dims=(None, None, None, 1, 1), out_dims=2)
    new_h, new_cell = over_both(input, weights, bias, *states)
    assert new_h.shape == (3, 2, 4, 7)
    for n in range(4):
        for m in range(2):
            torch.testing.assert_close(
                (new_h[:, m, n], new_cell[:, m, n]),
                lltm_cell(input, weights, bias, states[0, :, n, :, m], states[1, :, n, :, m]),
            )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias", [True, False])
def test_ensemble(bias, device):
    """Many cells as one: forward, and the gradients of every member."""
    cells = [lltm_jit.LLTMCell(5, 7, bias, device, torch.double) for _ in range(3)]
    input = torch.randn(4, 5, device=device, dtype=torch.double)
    skeleton = copy.deepcopy(cells[0]).to("meta")
    parameters, buffers = stack_module_state(cells)

    def member(parameters, buffers, input):
        return functional_call(skeleton, (parameters, buffers), (input,))

    new_h, new_cell = vmap(member, in_dims=(0, 0, None))(parameters, buffers, input)
    grads = torch.autograd.grad(new_h.square().sum() + new_cell.sum(), [*parameters.values()])
    for i, cell in enumerate(cells):
        expected_h, expected_cell = cell(input)
        torch.testing.assert_close((new_h[i], new_cell[i]), (expected_h, expected_cell))
        torch.testing.assert_close(
            [g[i] for g in grads],
            list(
                torch.autograd.grad(
                    expected_h.square().sum() + expected_cell.sum(), list(cell.parameters())
                )
            ),
        )
