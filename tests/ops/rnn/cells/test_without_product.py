"""Cells without recurrent weights: minGRU, SRU, and one that is not linear in its states."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from layer_testing import as_list, assert_alike, derivatives, like, states_of
from op_testing import DTYPES, for_each, needs_gpu
from sequence_testing import (
    Inputs,
    assert_within,
    check_derivatives,
    inputs_of,
    ours,
    reference,
    results_and_gradients,
)
from torch import Tensor
from torch.library import opcheck

import lltm_jit
from lltm_jit.functional import recurrent_sequence

CELL = """
struct {name}Cell {{
  static constexpr int kGates = {gates}, kStates = {states};
  static constexpr bool kProduct = false, kLinear = {linear};
  {more}
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], {p}const T (&old)[kStates],
                                        T (&now)[kStates]) {{
    {step}
  }}
}};
"""
PARAMETERS = {
    "more": "static constexpr int kParameters = 1;",
    "p": "const T (&p)[kParameters], ",
}
MIN_GRU = "now[0] = old[0] + sigmoid(x[0]) * (x[1] - old[0]);"
SRU = """
    const T forget = sigmoid(x[1]), reset = sigmoid(x[2]);
    now[1] = x[0] + forget * (old[1] - x[0]);
    now[0] = x[3] + reset * (p[0] * now[1] - x[3]);
"""
BENT = """
    now[1] = tanh(p[0] * old[1] + x[0]);
    now[0] = sigmoid(x[1] + old[0]) * now[1];
"""
PLAIN = {"more": "", "p": ""}
TEXTS = {
    "MinGru": CELL.format(name="MinGru", gates=2, states=1, linear="true", step=MIN_GRU, **PLAIN),
    "Sru": CELL.format(name="Sru", gates=4, states=2, linear="true", step=SRU, **PARAMETERS),
    "Bent": CELL.format(name="Bent", gates=2, states=2, linear="false", step=BENT, **PARAMETERS),
}
# Sru is linear as well, and has all that a cell may have.
NAMES = [pytest.param("MinGru", marks=pytest.mark.slow), "Sru", "Bent"]


class Cells(dict):
    """The classes by name, each compiled for the first test that takes it."""

    def __init__(self, header: Path) -> None:
        self.header = header
        header.write_text("#pragma once\n" + "".join(TEXTS.values()))

    def __missing__(self, name: str) -> type:
        return self.setdefault(name, lltm_jit.recurrent_cell(self.header, f"{name}Cell"))


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    return Cells(tmp_path_factory.mktemp("cells") / "cells.h")


def step(name: str, x: Tensor, y: Tensor, p: Tensor | None, old: list[Tensor]) -> list[Tensor]:
    """y, the product, has no numbers."""
    gates = x.unflatten(1, (-1, old[0].size(1))).unbind(1)
    if name == "MinGru":
        return [torch.lerp(old[0], gates[1], gates[0].sigmoid() + y.sum())]
    if name == "Sru":
        c = torch.lerp(gates[0], old[1], gates[1].sigmoid() + y.sum())
        return [torch.lerp(gates[3], p[0] * c, gates[2].sigmoid()), c]
    c = torch.tanh(p[0] * old[1] + gates[0] + y.sum())
    return [torch.sigmoid(gates[1] + old[0]) * c, c]


# On a GPU, around a warp's part of a tile, a tile, and where the sequence is divided among blocks.
SIZES = [(17, 1, 33), (127, 2, 64), (129, 2, 66), (1100, 2, 70)]
PLACES = [("cpu", (1, 2, 3)), ("cpu", (16, 3, 65))] + [
    pytest.param("cuda", size, marks=needs_gpu) for size in SIZES
]


name = for_each("name", NAMES)


def assert_as_reference(cells, name, inputs, reverse=False, error=1e-9) -> None:
    """In double, within a part of the largest number of each result."""
    exact, function = inputs.to(torch.double), partial(reference, step=partial(step, name))
    found = results_and_gradients(cells[name].cell, inputs, reverse)
    expected = results_and_gradients(cells[name].cell, exact, reverse, function)
    assert {result.dtype for result in found} == {inputs.gates.dtype}
    assert_within(found, expected, error, rtol=error)


@pytest.mark.thinned
@pytest.mark.parametrize(("device", "size"), PLACES, ids=str)
@pytest.mark.parametrize("control", [False, True])
def test_values_and_gradients(cells, name, control, size, reverse, device):
    inputs = inputs_of(cells[name].cell, *size, device=device, control=control)
    assert_as_reference(cells, name, inputs, reverse)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("size", [(40, 3, 64), (5, 2, 9)], ids=str)
def test_other_dtypes(cells, name, size, dtype, device):
    """A state goes on in float: an error is that of rounding it once, in products of few."""
    inputs = inputs_of(cells[name].cell, *size, dtype, device, control=True)
    assert_as_reference(cells, name, inputs, error=16 * torch.finfo(dtype).eps)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("device", "steps"), [("cpu", 7), pytest.param("cuda", 1100, marks=needs_gpu)]
)
@pytest.mark.parametrize("one", [False, True])
def test_resets_to_given_states(cells, name, reverse, one, device, steps):
    inputs = inputs_of(cells[name].cell, steps, 3, 34, device=device, control=True)
    count = 1 + (1 if one else steps)
    wide = {
        state: torch.randn(count, *getattr(inputs, state).shape).to(inputs.gates)
        for state in ("h_0", "c_0")[: cells[name].cell.states]
    }
    assert_as_reference(cells, name, inputs._replace(**wide), reverse)


def test_a_reset_ends_what_was_not_a_number(cells, name, device):
    inputs = inputs_of(cells[name].cell, 140, 2, 34, device=device)
    inputs.gates[3], inputs.h_0[:] = torch.nan, torch.inf
    control = torch.zeros(140, 2, dtype=torch.uint8, device=device)
    control[135] = 1
    output, *_ = ours(cells[name].cell, inputs._replace(control=control))
    assert output[3:135].isnan().all()
    assert output[135:].isfinite().all()


@pytest.mark.parametrize("resets", [[], [50, 51, 139]], ids=str)
def test_the_states_of_all_steps_have_gradients(cells, name, resets, device):
    """Also where rows are reset at two steps, one after the other, and at the last one."""
    options = {"dtype": torch.double, "device": device}
    layer = cells[name](3, 34, **options)
    x = torch.randn(140, 2, 3, **options, requires_grad=True)
    reset = torch.zeros(140, 2, dtype=torch.bool, device=device)
    reset[resets] = True
    hx = states_of(layer, 2, **options, requires_grad=True)
    *_, states = layer(x, hx, reset=reset if resets else None, return_states=True)
    old, expected = [each[0] for each in as_list(hx)], []
    nothing, p = x.new_empty(2, 0), getattr(layer, "parameters_l0", None)
    for gates, ends in zip(
        F.linear(x, layer.weight_ih_l0, layer.bias_ih_l0), reset.unsqueeze(2), strict=True
    ):
        old = step(name, gates, nothing, p, [torch.where(ends, 0.0, each) for each in old])
        expected.append(torch.stack(old).unsqueeze(1))
    expected = list(torch.stack(expected, 1))
    torch.testing.assert_close(as_list(states), expected)
    leaves, unused = [x, *as_list(hx), *layer.parameters()], {"materialize_grads": True}
    found = [derivatives(each, leaves, **unused) for each in (as_list(states), expected)]
    torch.testing.assert_close(*found)


def test_higher_derivatives_and_transforms(cells, name):
    check_derivatives(cells[name].cell, inputs_of(cells[name].cell, 4, 2, 3, control=True))


def test_opcheck(cells):
    inputs = inputs_of(cells["Sru"].cell, 4, 2, 3, control=True).requires_grad()
    args = (*inputs, False, cells["Sru"].cell.name)
    opcheck(torch.ops.lltm_jit.recurrent_sequence, args)
    opcheck(torch.ops.lltm_jit.recurrent_sequence_forward, args)


def test_it_is_a_layer_as_any_other(cells, name, device):
    layer = cells[name](5, 7, 2, bidirectional=True, dropout=0.5, device=device).eval()
    kinds = {parameter.partition("_l")[0] for parameter, _ in layer.named_parameters()}
    assert kinds - {"parameters"} == {"weight_ih", "bias_ih"}
    x = torch.randn(6, 3, 5, device=device)
    output, last = layer(x)
    assert output.shape == (6, 3, 14)
    assert all(state.shape == (4, 3, 7) for state in as_list(last))
    short, _ = layer(x[:2, 1:2])
    padded, _ = layer(x, lengths=[6, 2, 4])
    torch.testing.assert_close(padded[:2, 1:2], short)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], output)
    kept = cells[name](5, 7, checkpoint=4, device=device)
    assert_alike((kept, like(kept, 5, 7, device=device)), x)
    cells[name].check()


def test_heads_and_directions_of_one_call(cells):
    cell = cells["Sru"].cell
    one = inputs_of(cell, 9, 2, 4, control=True)
    twice = [t if t is None else 2 * t for t in one[:6]]
    both = [t if t is None else torch.cat([t, u], -1) for t, u in zip(one[:6], twice, strict=True)]
    both[1] = torch.empty(2, 0, 4, dtype=torch.double)
    found = ours(cell, Inputs(*both, torch.stack([one.control] * 2)), directions=2)
    apart = ours(cell, one), ours(cell, Inputs(*twice, one.control), reverse=True)
    torch.testing.assert_close(found, tuple(torch.cat(p, -1) for p in zip(*apart, strict=True)))


def test_arguments_that_such_a_cell_does_not_have(cells):
    gates, name = torch.randn(3, 2, 16), cells["Sru"].cell.name
    with pytest.raises(RuntimeError, match=r"weight_hh.*\[0, hidden_size\], as the cell has no"):
        recurrent_sequence(name, gates, torch.randn(16, 4))
    with pytest.raises(RuntimeError, match=r"expected bias_hh to be None, as .* has no product"):
        recurrent_sequence(name, gates, torch.empty(0, 4), torch.randn(16))


@pytest.mark.slow
def test_a_claim_to_be_linear_is_checked(tmp_path):
    header = tmp_path / "wrong.h"
    header.write_text(TEXTS["Bent"].replace("kLinear = false", "kLinear = true"))
    cell = lltm_jit.recurrent_cell(header, "BentCell")
    with pytest.raises(lltm_jit.LltmJitError, match=r"wrong.h:4: now\[0\] is .* by its derivative"):
        cell.check()


@pytest.mark.slow
def test_layers_of_linear_maps(cells):
    """As torch computes it for all steps at once."""
    layer = cells["MinGru"](3, 4, dtype=torch.double)
    x = torch.randn(6, 2, 3, dtype=torch.double)
    z, candidate = F.linear(x, layer.weight_ih_l0, layer.bias_ih_l0).chunk(2, 2)
    kept, entered = 1 - z.sigmoid(), z.sigmoid() * candidate
    products = kept.cumprod(0)
    expected = products * (entered / products).cumsum(0)
    torch.testing.assert_close(layer(x)[0], expected)
