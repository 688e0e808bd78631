"""Hidden sizes that are no multiple of four, whose gates and weights are padded on a GPU."""

import itertools
from typing import Any

import pytest
import torch
from layer_testing import derivatives
from op_testing import bits, needs_gpu
from sequence_testing import (
    assert_same_bits_again,
    cell_header,
    cell_of,
    inputs_of,
    results_and_gradients,
)
from test_sequence import check
from torch import Tensor
from torch.library import opcheck

import lltm_jit
from lltm_jit.functional import recurrent_sequence
from lltm_jit.ops.rnn.sequence import input_gates

ops = torch.ops.lltm_jit
# Its value, and its derivative, are no numbers where a gate is zero, as those of padding are.
NOT_A_NUMBER = cell_header(
    "NotANumberCell",
    2,
    """const T sum = x[0] + h[0];
    now[1] = T(0.5) * old[1] + (sum - sum) / sum;
    now[0] = tanh(sum) + now[1];""",
)


def padded(size: int) -> int:
    return (size + 7) // 8 * 8


def dense_layer(cell: str, operands: list[Any], parameters: Tensor | None = None) -> Tensor:
    x, weight_ih, weight_hh, bias_ih, bias_hh = operands
    gates = input_gates(x, weight_ih, bias_ih)
    return recurrent_sequence(cell, gates, weight_hh, bias_hh, parameters)[0]


def padded_layer(cell: str, operands: list[Tensor], parameters: Tensor | None = None) -> Tensor:
    """Which adds the biases before if the cell adds its gates."""
    facts = cell_of(cell)
    *others, bias_ih, bias_hh = ops.pad_gates(*operands, facts.gates, facts.adds_gates)
    given = [*others, None if facts.adds_gates else bias_ih, bias_hh]
    return dense_layer(cell, given, parameters)


def operands_of(
    cell: str, features: int, hidden_size: int, dtype: torch.dtype, device: str
) -> list[Tensor]:
    rows = cell_of(cell).gates * hidden_size
    shapes = [(4, 3, features), (rows, features), (rows, hidden_size), (rows,), (rows,)]
    return [torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("hidden_size", [1, 3, 6, 9, 12, 13])
def test_what_is_padded_gives_the_same(cell, hidden_size, device):
    operands = operands_of(cell, 5, hidden_size, torch.double, device)
    parameters = inputs_of(cell, 1, 1, hidden_size, device=device).parameters
    grad = torch.randn(4, 3, hidden_size, dtype=torch.double, device=device)
    outputs = [layer(cell, operands, parameters) for layer in (padded_layer, dense_layer)]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(y, operands, grad) for y in outputs))


@pytest.mark.parametrize("size", [(5, 7), (8, 9), (3, 4), (1, 2)], ids=str)
def test_padded_operands(size, dtype, device):
    """Behind what there is are zeros; rows start at multiples of eight."""
    features, hidden_size = size
    operands = operands_of("gru", features, hidden_size, dtype, device)
    gate = padded(hidden_size)
    results = ops.pad_gates(*operands, 3, False)
    *_, added, both = ops.pad_gates(*operands, 3, True)
    assert added.numel() == 0
    assert torch.equal(both, results[3] + results[4])
    assert results[2].stride() == (padded(hidden_size), 1)
    of_weights = (3 * gate, padded(features)), (3 * gate, hidden_size)
    shapes = [(4, 3, padded(features)), *of_weights, (3 * gate,), (3 * gate,)]
    for given, result, shape in zip(operands, results, shapes, strict=True):
        expected, part = given.new_zeros(shape), given.detach()
        place = expected
        if given.dim() < 3:
            place = expected.unflatten(0, (3, gate))[:, :hidden_size]
            part = part.unflatten(0, (3, hidden_size))
        place[..., : part.size(-1)] = part
        assert torch.equal(result, expected)
    if device == "cuda" and dtype != torch.double:
        behind = results[2].as_strided((3 * gate, gate), (gate, 1))[:, hidden_size:]
        assert not behind.any()


@pytest.mark.parametrize("layout", ["transposed", "apart", "unaligned"])
@pytest.mark.parametrize("hidden_size", [7, 8])
def test_operands_of_any_layout(hidden_size, layout, device):
    def arranged(tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if layout == "transposed":
            return tensor.transpose(0, -1).contiguous().transpose(0, -1)
        wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.size(-1) + 1)
        view = wide[..., 1::2] if layout == "apart" else wide[..., 1 : tensor.size(-1) + 1]
        return view.copy_(tensor)

    dense = [t.detach() for t in operands_of("gru", 5, hidden_size, torch.float, device)]
    found = []
    for given in (dense, [arranged(tensor) for tensor in dense]):
        leaves = [tensor.requires_grad_() for tensor in given]
        output = padded_layer("gru", leaves)
        found.append([output, *derivatives([output], leaves)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)
def test_the_padding_may_be_anything(cell, reverse, dtype, device):
    hidden_size, gates = 5, cell_of(cell).gates
    plain = inputs_of(cell, 4, 3, hidden_size, dtype, device, control=True)

    def with_room(tensor: Tensor, dim: int, value: float) -> Tensor:
        apart = tensor.unflatten(dim, (gates, hidden_size))
        shape = list(apart.shape)
        shape[dim + 1] = padded(hidden_size) - hidden_size
        return torch.cat([apart, apart.new_full(shape, value)], dim + 1).flatten(dim, dim + 1)

    bias = None if plain.bias_hh is None else with_room(plain.bias_hh, 0, 0)
    found = []
    for value in (0.0, torch.nan, torch.inf):
        inputs = plain._replace(
            gates=with_room(plain.gates, 2, value),
            weight_hh=with_room(plain.weight_hh, 0, 0),
            bias_hh=bias,
        )
        found.append(results_and_gradients(cell, inputs, reverse))
    assert bits(found[1]) == bits(found[2]) == bits(found[0])
    expected = results_and_gradients(cell, plain, reverse)
    for ours, dense in zip(found[0], expected, strict=True):
        if ours.shape != dense.shape:
            dense = with_room(dense, 2 if ours.dim() == 3 else 0, 0)
        torch.testing.assert_close(ours, dense)


def test_columns_beside_a_view_of_weights_do_not_count(device):
    """Of a matrix that is wider than the padded weights."""
    hidden_size, gates = 5, cell_of("lstm").gates
    operands = [t.detach() for t in operands_of("lstm", 3, hidden_size, torch.float, device)]
    *_, weight_hh, _, bias = ops.pad_gates(*operands, gates, True)
    wide = weight_hh.new_full((weight_hh.size(0), 2 * padded(hidden_size)), torch.nan)
    view = wide[:, :hidden_size].copy_(weight_hh)
    ones, found = torch.ones(4, 3, len(weight_hh), device=device), []
    for weights in (weight_hh, view):
        leaf = weights.detach().requires_grad_()
        output, *_ = recurrent_sequence("lstm", ones, leaf, bias)
        found.append([output, *derivatives([output], [leaf])])
    assert bits(found[0]) == bits(found[1])


def test_opcheck(device):
    """With what is padded, which test_every_operator.py has not."""
    operands = operands_of("gru", 5, 7, torch.float, device)
    opcheck(ops.pad_gates, (*operands, 3, True))
    opcheck(ops.pad_gates, (None, *operands[1:4], None, 3, False))
    padded = [t.detach() for t in ops.pad_gates(*operands, 3, False)]
    gates = torch.randn(4, 3, 24, device=device, requires_grad=True)
    args = (gates, padded[2], padded[4], None, None, None, None, False, "gru")
    opcheck(ops.recurrent_sequence, args)


def test_errors_name_both_values():
    operands = operands_of("gru", 5, 7, torch.float, "cpu")
    with pytest.raises(RuntimeError, match=r"weight_ih .* = \[21, 5\], but got \[20, 5\]"):
        ops.pad_gates(operands[0], operands[1][:20], *operands[2:], 3, False)
    with pytest.raises(RuntimeError, match="expected both biases"):
        ops.pad_gates(*operands[:4], None, 3, True)
    with pytest.raises(RuntimeError, match=r"gates .* = \[4, 3, 21\], but got \[4, 3, 24\]"):
        recurrent_sequence("gru", torch.randn(4, 3, 24), operands[2])


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float], ids=str)
@pytest.mark.parametrize("hidden_size", [1, 2, 3, 5, 6, 7, 9, 15])
def test_sequences(cell, hidden_size, dtype):
    inputs = inputs_of(cell, 4, 5, hidden_size, dtype, "cuda", control=True)
    check(cell, inputs)
    assert_same_bits_again(cell, inputs)
    check(cell, inputs._replace(h_0=None, c_0=None, control=None), reverse=True)


@needs_gpu
@pytest.mark.parametrize(
    ("cell", "dtype", "size"),
    [
        ("lltm", torch.bfloat16, (5, 20, 17)),
        ("gru", torch.half, (5, 20, 33)),
        ("lstm", torch.half, (5, 20, 130)),
        ("gru", torch.bfloat16, (5, 20, 650)),
        ("lltm", torch.half, (5, 20, 1151)),
        ("lstm", torch.float, (5, 7, 650)),
        ("gru", torch.float, (3, 20, 1151)),
        ("gru", torch.float, (3, 20, 2177)),  # step by step
    ],
    ids=str,
)
def test_large_sequences(cell, dtype, size):
    inputs = inputs_of(cell, *size, dtype, "cuda", control=True)
    check(cell, inputs)
    assert_same_bits_again(cell, inputs)


@pytest.mark.slow
def test_what_a_cell_makes_of_padding_stays_there(device, tmp_path):
    header = tmp_path / "not_a_number.h"
    header.write_text(NOT_A_NUMBER)
    cell = lltm_jit.recurrent_cell(header, "NotANumberCell")
    for dtype, hidden_size in itertools.product((torch.half, torch.float), (3, 17)):
        layer = cell(5, hidden_size, num_layers=2, device=device, dtype=dtype)
        x = torch.randn(4, 3, 5, device=device, dtype=dtype, requires_grad=True)
        output, states = layer(x)
        grads = torch.autograd.grad(output.sum() + states[1].sum(), [x, *layer.parameters()])
        assert all(tensor.isfinite().all() for tensor in (output, *states, *grads))
