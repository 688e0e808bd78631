"""The exponential gates of the sLSTM, which may be of any size, against its formula in float64."""

import pytest
import torch
from op_testing import assert_accurate
from sequence_testing import Inputs, in_turn, inputs_of, results_and_gradients
from torch import Tensor

import lltm_jit
from lltm_jit.functional import recurrent_sequence


def large_inputs(
    most: float, dtype: torch.dtype, device: str, *, state: bool, heads: int = 1
) -> Inputs:
    """Gates from -most to most; and with a state, one that a sequence may have had."""
    steps, rows, size = 9, 6, 8
    given = inputs_of("slstm", steps, rows, size, device=device, state=state)
    gates = (2 * torch.rand(steps, rows, heads * 4 * size, dtype=torch.double) - 1) * most
    weights = torch.stack([given.weight_hh.roll(i) for i in range(heads)])
    if not state:
        return given._replace(gates=gates.to(device), weight_hh=weights).to(dtype)
    h_0, (c, n, m) = given.h_0.tanh(), given.c_0
    states = [h_0, c, 1 + n.exp(), most * m.tanh()]
    h_0, *cells = (tensor.repeat(1, heads) for tensor in states)
    changed = {"gates": gates.to(device), "weight_hh": weights, "h_0": h_0}
    return given._replace(**changed, c_0=torch.stack(cells)).to(dtype)


def by_formula(cell: str, inputs: Inputs, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The reference of each head."""
    return in_turn(cell, inputs, 1, reverse)


def second_gradients(function, inputs: Inputs) -> list[Tensor]:
    given = inputs.requires_grad()
    leaves = given.leaves()
    loss = sum(result.sin().sum() for result in function("slstm", given, False))
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    return list(torch.autograd.grad(sum(g.sin().sum() for g in first), leaves))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("most", [0, 3, 100])
def test_float64(most, state, heads, device):
    inputs = large_inputs(most, torch.double, device, state=state, heads=heads)
    right = results_and_gradients("slstm", inputs, function=by_formula, smooth=False)
    found = results_and_gradients("slstm", inputs, smooth=False)
    for ours, expected in zip(found, right, strict=True):
        torch.testing.assert_close(ours, expected)
    ours = second_gradients(lambda cell, given, _: recurrent_sequence(cell, *given), inputs)
    for actual, expected in zip(ours, second_gradients(by_formula, inputs), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16, torch.half], ids=str)
@pytest.mark.parametrize("most", [20, 100])
def test_other_dtypes(most, dtype, device):
    inputs = large_inputs(most, dtype, device, state=True)
    actual = results_and_gradients("slstm", inputs)
    exact = results_and_gradients("slstm", inputs.to(torch.double), function=by_formula)
    usual = results_and_gradients("slstm", inputs, function=by_formula)
    for ours, right, same_dtype in zip(actual, exact, usual, strict=True):
        assert_accurate(ours, right, same_dtype, ulps=8, sums=True, parts=16)


@pytest.mark.parametrize("dtype", [torch.double, torch.float, torch.bfloat16], ids=str)
@pytest.mark.parametrize("most", [100, 1e4, 1e30])
def test_all_is_finite(most, dtype, device):
    """From a state of zeros, which an input gate of exp(-100) begins to fill, too."""
    inputs = large_inputs(most, dtype, device, state=False)
    zeros = torch.zeros(3, 6, 8, dtype=dtype, device=device)
    inputs = inputs._replace(weight_hh=inputs.weight_hh / most, c_0=zeros)
    for tensor in results_and_gradients("slstm", inputs, smooth=False):
        assert tensor.isfinite().all()


def test_a_reset_is_a_beginning(device):
    """Also where the step before has left a large sum."""
    inputs = large_inputs(100, torch.float, device, state=True)
    control = torch.zeros(9, 6, dtype=torch.uint8, device=device)
    control[4] = 1
    output, _, _ = recurrent_sequence("slstm", *inputs._replace(control=control))
    rest = inputs._replace(gates=inputs.gates[4:], h_0=None, c_0=None)
    assert torch.equal(output[4:], recurrent_sequence("slstm", *rest)[0])


def test_the_state_of_a_layer():
    layer = lltm_jit.SLSTM(5, 8, 2, bidirectional=True, num_heads=2)
    x = torch.randn(7, 3, 5)
    output, states = layer(x[:4])
    assert output.shape == (4, 3, 16)
    assert [tuple(s.shape) for s in states] == [(4, 3, 8)] * 4
    one = lltm_jit.SLSTM(5, 8, 2, num_heads=2)
    whole, ends = one(x)
    first, states = one(x[:4])
    second, last = one(x[4:], states)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(last, ends)
