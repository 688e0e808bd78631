"""Cells without recurrent weights: minGRU, SRU, and one that is not linear in its states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from op_testing import DTYPES, needs_gpu
from sequence_testing import Inputs, controls, reference
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
    "MinGru": CELL.format(
        name="MinGru",
        gates=2,
        states=1,
        linear="true",
        step="now[0] = old[0] + sigmoid(x[0]) * (x[1] - old[0]);",
        **PLAIN,
    ),
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


def step(name: str, x: Tensor, p: Tensor | None, old: list[Tensor]) -> list[Tensor]:
    gates = x.unflatten(1, (-1, old[0].size(1))).unbind(1)
    if name == "MinGru":
        return [torch.lerp(old[0], gates[1], gates[0].sigmoid())]
    if name == "Sru":
        c = torch.lerp(gates[0], old[1], gates[1].sigmoid())
        return [torch.lerp(gates[3], p[0] * c, gates[2].sigmoid()), c]
    c = torch.tanh(p[0] * old[1] + gates[0])
    return [torch.sigmoid(gates[1] + old[0]) * c, c]


def inputs_of(cells, name, steps, rows, units, dtype=torch.double, device="cpu", control=True):
    cell = cells[name].cell

    def random(*shape: int) -> Tensor:
        tensor = torch.randn(shape, dtype=torch.double, device=device).to(dtype)
        return tensor.requires_grad_()

    given = {
        "gates": random(steps, rows, cell.gates * units),
        "parameters": random(cell.parameters, units) if cell.parameters else None,
        "h_0": random(rows, units),
        "c_0": random(cell.states - 1, rows, units) if cell.states > 1 else None,
        "control": controls(steps, rows).to(device) if control else None,
    }
    return given


def results_of(cells, name, given, reverse=False) -> tuple[Tensor, ...]:
    weight, others = given["h_0"].new_empty(0, given["h_0"].size(-1)), given | {"bias_hh": None}
    return recurrent_sequence(cells[name].cell.name, weight_hh=weight, reverse=reverse, **others)


def with_gradients(results, given) -> list[Tensor]:
    leaves = [t for t in given.values() if t is not None and t.requires_grad]
    loss = sum((r.double() * r.double().sin()).sum() for r in results)
    return [*results, *torch.autograd.grad(loss, leaves)]


def expected_of(name, given, reverse=False) -> list[Tensor]:
    leaves = {
        k: t.detach().double().requires_grad_()
        for k, t in given.items()
        if t is not None and k != "control"
    }
    gates = leaves["gates"]
    no_product = gates.new_empty(0, leaves["h_0"].size(-1))
    states = (leaves.get(key) for key in ("parameters", "h_0", "c_0"))
    inputs = Inputs(gates, no_product, None, *states, given["control"])
    found = reference(name, inputs, reverse, lambda x, y, p, old: step(name, x, p, old))
    return with_gradients(found, leaves)


# On a GPU, around a warp's part of a tile, a tile, and where the sequence is divided among blocks.
SIZES = [(17, 1, 33), (127, 2, 64), (129, 2, 66), (1100, 2, 70)]
PLACES = [("cpu", (1, 2, 3)), ("cpu", (16, 3, 65))] + [
    pytest.param("cuda", size, marks=needs_gpu) for size in SIZES
]


@pytest.mark.thinned
@pytest.mark.parametrize(("device", "size"), PLACES, ids=str)
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(cells, name, control, size, reverse, device):
    given = inputs_of(cells, name, *size, device=device, control=control)
    assert_as_reference(cells, name, given, reverse)


def assert_as_reference(cells, name, given, reverse) -> None:
    found = with_gradients(results_of(cells, name, given, reverse), given)
    for ours, theirs in zip(found, expected_of(name, given, reverse), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("size", [(40, 3, 64), (5, 2, 9)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_other_dtypes(cells, name, size, dtype, device):
    given = inputs_of(cells, name, *size, dtype=dtype, device=device)
    results = results_of(cells, name, given)
    assert {result.dtype for result in results} == {dtype}
    found = with_gradients(results, given)
    # A state goes on in float: an error is that of rounding it once, in products of few numbers.
    error = 16 * torch.finfo(dtype).eps
    for ours, theirs in zip(found, expected_of(name, given), strict=True):
        most = theirs.abs().max().item() if theirs.numel() else 0.0
        torch.testing.assert_close(ours.double(), theirs, rtol=error, atol=error * most)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("device", "steps"), [("cpu", 7), pytest.param("cuda", 1100, marks=needs_gpu)]
)
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_resets_to_given_states(cells, name, reverse, one, device, steps):
    """One for all steps, or one for each, behind the state before the first step."""
    given = inputs_of(cells, name, steps, 3, 34, device=device)
    count = 1 + (1 if one else steps)
    for state in ("h_0", "c_0"):
        if given[state] is not None:
            wide = torch.randn(count, *given[state].shape, dtype=torch.double, device=device)
            given[state] = wide.requires_grad_()
    assert_as_reference(cells, name, given, reverse)


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_ends_what_was_not_a_number(cells, name, device):
    given = inputs_of(cells, name, 140, 2, 34, device=device, control=False)
    with torch.no_grad():
        given["gates"][3] = torch.nan
        given["h_0"].fill_(torch.inf)
    control = torch.zeros(140, 2, dtype=torch.uint8, device=device)
    control[135] = 1
    given["control"] = control
    output, *_ = results_of(cells, name, given)
    assert output[3:135].isnan().all()
    assert output[135:].isfinite().all()


@pytest.mark.parametrize("resets", [[], [50, 51, 139]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_states_of_all_steps_have_gradients(cells, name, resets, device):
    """Also where rows are reset at two steps, one after the other, and at the last one."""
    layer = cells[name](3, 34, dtype=torch.double, device=device)
    x = torch.randn(140, 2, 3, dtype=torch.double, device=device, requires_grad=True)
    reset = torch.zeros(140, 2, dtype=torch.bool, device=device)
    reset[resets] = True
    old = [torch.randn_like(x[0, :, :1].expand(2, 34)) for _ in range(layer.cell.states)]
    leaves = [x, *(each.requires_grad_() for each in old), *layer.parameters()]
    hx = tuple(each.unsqueeze(0) for each in old)
    hx = hx if len(hx) > 1 else hx[0]
    _, _, states = layer(x, hx, reset=reset if resets else None, return_states=True)
    states = torch.stack([states] if isinstance(states, Tensor) else [*states], 1).squeeze(2)
    gates = F.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)
    p = getattr(layer, "parameters_l0", None)
    expected = []
    for gate, ends in zip(gates, reset, strict=True):
        old = step(name, gate, p, [torch.where(ends.unsqueeze(1), 0.0, each) for each in old])
        expected.append(torch.stack(old))
    pairs = [
        torch.autograd.grad(s.sin().sum(), leaves, materialize_grads=True)
        for s in (states, torch.stack(expected))
    ]
    torch.testing.assert_close(states, torch.stack(expected))
    torch.testing.assert_close(*pairs)


@pytest.mark.parametrize("name", NAMES)
def test_higher_derivatives_and_transforms(cells, name):
    given = inputs_of(cells, name, 4, 2, 3)
    names = [k for k, t in given.items() if t is not None and k != "control"]
    leaves = [given[k] for k in names]

    def function(*tensors):
        results = results_of(cells, name, given | dict(zip(names, tensors, strict=True)))
        return tuple(r for r in results if r.numel())

    assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_opcheck(cells):
    gates, *others = inputs_of(cells, "Sru", 4, 2, 3).values()
    args = (gates, gates.new_empty(0, 3), None, *others, False, cells["Sru"].cell.name)
    opcheck(torch.ops.lltm_jit.recurrent_sequence, args)
    opcheck(torch.ops.lltm_jit.recurrent_sequence_forward, args)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_layer_as_any_other(cells, name, device):
    layer = cells[name](5, 7, 2, bidirectional=True, dropout=0.5, device=device).eval()
    kinds = {parameter.partition("_l")[0] for parameter, _ in layer.named_parameters()}
    assert kinds - {"parameters"} == {"weight_ih", "bias_ih"}
    x = torch.randn(6, 3, 5, device=device)
    output, last = layer(x)
    states = (last,) if isinstance(last, Tensor) else last
    assert output.shape == (6, 3, 14)
    assert all(state.shape == (4, 3, 7) for state in states)
    short, _ = layer(x[:2, 1:2])
    padded, _ = layer(x, lengths=[6, 2, 4])
    torch.testing.assert_close(padded[:2, 1:2], short)
    torch.testing.assert_close(layer(x.flip(0))[0].shape, output.shape)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], output)
    kept = cells[name](5, 7, checkpoint=4, device=device)
    plain = cells[name](5, 7, device=device)
    plain.load_state_dict(kept.state_dict())
    gradients = [
        torch.autograd.grad(each(x)[0].sin().sum(), each.parameters()) for each in (kept, plain)
    ]
    torch.testing.assert_close(*gradients)
    cells[name].check()


def test_heads_and_directions_of_one_call(cells):
    """Each is what a call of its own computes."""
    given = inputs_of(cells, "Sru", 9, 2, 4)
    name, gates = cells["Sru"].cell.name, given["gates"].detach()
    p, h, c, control = (given[k].detach() for k in ("parameters", "h_0", "c_0", "control"))

    def both(t: Tensor) -> Tensor:
        return torch.cat([t, 2 * t], -1)

    args = both(gates), torch.empty(2, 0, 4, dtype=torch.double), None, both(p), both(h), both(c)
    output, h_n, c_n = recurrent_sequence(name, *args, torch.stack([control] * 2), False, True)
    empty = torch.empty(0, 4, dtype=torch.double)
    first = recurrent_sequence(name, gates, empty, None, p, h, c, control)
    other = recurrent_sequence(name, 2 * gates, empty, None, 2 * p, 2 * h, 2 * c, control, True)
    for found, pair in zip((output, h_n, c_n), zip(first, other, strict=True), strict=True):
        torch.testing.assert_close(found, torch.cat(pair, -1))


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
