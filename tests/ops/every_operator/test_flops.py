"""FLOPs of operators, as torch.utils.flop_counter counts them."""

import pytest
import torch
from layer_testing import LAYERS, THEIRS, tensors
from op_testing import run_program
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import lltm_jit
from lltm_jit._library import OPERATORS
from lltm_jit.ops.filtered_lrelu import filtered_lrelu
from lltm_jit.ops.upfirdn2d import upfirdn2d


def count(function, *args, backward: bool = False) -> int:
    with FlopCounterMode(display=False) as mode:
        found = function(*args)
        if backward:
            tensors(found)[0].sum().backward()
    return mode.get_total_flops()


def test_every_operator_has_a_formula():
    for names in OPERATORS.values():
        for name in names:
            assert getattr(torch.ops.lltm_jit, name) in flop_registry, name


@pytest.mark.parametrize("first", ["torch.utils.flop_counter", "lltm_jit"])
def test_the_counter_may_be_imported_before_and_after(first):
    """And NumPy need not be installed."""
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        f"import {first}, torch, lltm_jit, lltm_jit.ops.upfirdn2d, torch.utils.flop_counter\n"
        "from torch.utils.flop_counter import flop_registry\n"
        "print(all(op in flop_registry for op in"
        " (torch.ops.lltm_jit.input_gates, torch.ops.lltm_jit.upfirdn2d)))\n"
    )
    assert run_program(program).stdout == "True\n"


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", THEIRS)
def test_layers_count_as_torchs(kind, grad):
    """Those of torch that are counted; an LSTM has four thirds of a GRU's products."""
    x, sizes = torch.randn(20, 4, 10), (10, 16)
    expected = count(THEIRS["GRU" if kind == "LSTM" else kind](*sizes), x, backward=grad)
    expected = expected * 4 / 3 if kind == "LSTM" else expected
    found = count(LAYERS[kind](*sizes), x, backward=grad)
    assert expected <= found <= (1.02 if grad else 1) * expected  # h_0 has no gradient


def test_cells_count_as_torchs():
    x = torch.randn(4, 10)
    for kind in ("LSTMCell", "GRUCell", "RNNCell"):
        ours, theirs = (getattr(module, kind)(10, 256) for module in (lltm_jit, nn))
        assert count(ours, x) == count(theirs, x)
    cell = lltm_jit.LLTMCell(10, 256)
    assert count(cell, x) == 2 * 4 * cell.weights.numel()
    assert count(cell, x, backward=True) == 2 * 2 * 4 * cell.weights.numel()


def test_heads_count_their_blocks_alone():
    x = torch.randn(20, 4, 10)
    whole, heads = (count(lltm_jit.LSTM(10, 16, num_heads=n), x) for n in (1, 4))
    assert whole - heads == 2 * 20 * 4 * 4 * 16 * (16 - 4)


def test_filters_count_as_convolutions_without_the_zeros():
    x, f = torch.randn(2, 3, 16, 16), torch.rand(4, 4)
    weight = f[None, None].expand(3, 1, 4, 4)
    expected = count(lambda: (nn.functional.conv2d(x, weight, groups=3, padding=2),))
    assert count(lambda: (upfirdn2d(x, f, padding=2),)) == expected
    up = count(lambda: (upfirdn2d(x, f, up=2, padding=[2, 1, 2, 1]),))
    assert up == 2 * 2 * 3 * 32 * 32 * 16 / 4
    lines = count(lambda: (upfirdn2d(x, f[0], padding=2),))
    assert lines == expected / 2
    both = count(lambda: (filtered_lrelu(x, f[0], f[0], up=2, down=2, padding=3),))
    assert both == 2 * 2 * 3 * 16 * 16 * (4 * 4 + 8)
