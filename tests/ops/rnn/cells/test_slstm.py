"""The exponential gates of the sLSTM, which may be of any size, against its formula in float64."""

import pytest
import torch
from layer_testing import derivatives
from sequence_testing import Inputs, assert_near, in_turn, inputs_of, ours, results_and_gradients
from torch import Tensor

import lltm_jit


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


def second_gradients(function, inputs: Inputs) -> list[Tensor]:
    given = inputs.requires_grad()
    return derivatives([r.sin() for r in function("slstm", given)], given.leaves(), orders=2)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("most", [0, 3, 100])
def test_float64(most, state, heads, device):
    inputs = large_inputs(most, torch.double, device, state=state, heads=heads)
    found = [
        results_and_gradients("slstm", inputs, function=function, smooth=False)
        + second_gradients(function, inputs)
        for function in (ours, in_turn)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16, torch.half], ids=str)
@pytest.mark.parametrize("most", [20, 100])
def test_other_dtypes(most, dtype, device):
    inputs = large_inputs(most, dtype, device, state=True)
    assert_near("slstm", inputs, functions=(ours, in_turn), ulps=8, parts=16)


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
    inputs = large_inputs(100, torch.float, device, state=True)
    control = torch.zeros(9, 6, dtype=torch.uint8, device=device)
    control[4] = 1
    output, _, _ = ours("slstm", inputs._replace(control=control))
    rest = inputs._replace(gates=inputs.gates[4:], h_0=None, c_0=None)
    assert torch.equal(output[4:], ours("slstm", rest)[0])


def test_the_states_of_a_layer_go_on():
    layer = lltm_jit.SLSTM(5, 8, 2, num_heads=2)
    x = torch.randn(7, 3, 5)
    whole, ends = layer(x)
    first, states = layer(x[:4])
    second, last = layer(x[4:], states)
    torch.testing.assert_close((torch.cat([first, second]), last), (whole, ends))
