"""The maths of cells of one's own: the example's, and the functions that a cell may call."""

import copy
import importlib
import math
from pathlib import Path

import pytest
import torch
from layer_testing import check_layer, derivatives, layer_reference
from sequence_testing import cell_header

import lltm_jit
from lltm_jit.functional import recurrent_sequence


@pytest.fixture(scope="module")
def example():
    """The example's tests, which other tests run too: its layer, and what it computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[4] / "examples" / "peephole")
        return importlib.import_module("test_peephole")


@pytest.fixture(scope="module")
def peephole(example):
    return example.Peephole


TOLERANCES = {torch.double: 1e-12, torch.float: 1e-5, torch.half: 1e-2}


def assert_near(found, expected, learnt, exactly_learnt, tolerance: float) -> None:
    """Results, and with three times the error their gradients."""
    for results, right, factor in (
        (found, expected, 1),
        (derivatives(found, learnt), derivatives(expected, exactly_learnt), 3),
    ):
        wide = [each.double() for each in results]
        torch.testing.assert_close(wide, right, rtol=factor * tolerance, atol=factor * tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_values_and_gradients(example, peephole, dtype, device):
    layer = peephole(5, 24, dtype=dtype, device=device)
    assert len(list(layer.parameters())) == 5
    x = torch.randn(7, 3, 5, dtype=dtype, device=device)
    exact = copy.deepcopy(layer).double()
    learnt = [[*each.parameters()] for each in (layer, exact)]
    assert_near([layer(x)[0]], [example.plain(exact, x.double())], *learnt, TOLERANCES[dtype])


def test_second_derivatives(peephole):
    layer = peephole(2, 3, bidirectional=True, dtype=torch.double)
    check_layer(layer, "parameters_l0")


FUNCTIONS = """
    const T z = x[0] + h[0], limit = log(T(2)) * sqrt(exp(T(1)));  // of constants, too
    const T factor = cos(log(T(2) + old[1] * old[1]));
    now[0] = min(sin(z) + sqrt(T(2) + z * z) + abs(z), limit + log1p(exp(z))) * factor;
    now[1] = max(z, T(0));
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    header = tmp_path_factory.mktemp("cells") / "functions.h"
    header.write_text(cell_header("FunctionsCell", 2, FUNCTIONS))
    return lltm_jit.recurrent_cell(header, "FunctionsCell")


def functions_step(x, y, p, old):
    z, c = x + y, old[1]
    limit = math.log(2) * math.sqrt(math.e) + z.exp().log1p()
    h = torch.minimum(z.sin() + (2 + z * z).sqrt() + z.abs(), limit) * (2 + c * c).log().cos()
    return [h, z.relu()]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_functions_that_a_cell_may_call(functions, dtype, device):
    layer = functions(2, 21, dtype=dtype, device=device)
    x = torch.randn(5, 3, 2, dtype=dtype, device=device)
    exact = copy.deepcopy(layer).double()
    output, (_, c) = layer(x)
    expected, (_, right) = layer_reference(exact, x.double(), step=functions_step)
    learnt = [[*each.parameters()] for each in (layer, exact)]
    assert_near([output, c], [expected, right], *learnt, 3 * TOLERANCES[dtype])


@pytest.mark.slow
def test_functions_that_a_cell_may_call_have_second_derivatives(functions):
    check_layer(functions(2, 3, dtype=torch.double))


@pytest.mark.slow
def test_kinks_are_as_torchs(functions, device):
    """Of two equal numbers each has half of the derivative, and abs() has none at 0."""
    layer = functions(1, 1, device=device)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.ones_(layer.weight_ih_l0)
    x = torch.tensor([0.0, math.nan, math.inf, -math.inf, 2.0, -2.0], device=device)
    c = layer(x.view(1, 6, 1))[1][1].view(6)
    assert torch.equal(c.nan_to_num(5.0), torch.maximum(x, torch.zeros_like(x)).nan_to_num(5.0))
    for value, derivative in ((0.0, 0.5), (2.0, 1.0), (-2.0, 0.0)):
        c = layer(x.new_full((1, 1, 1), value))[1][1]
        assert torch.autograd.grad(c.sum(), layer.bias_ih_l0)[0].item() == derivative
    output, _ = layer(x.new_zeros(1, 1, 1))
    found = torch.autograd.grad(output.sum(), layer.bias_ih_l0)[0].item()
    assert found == pytest.approx(math.cos(math.log(2)))


def test_it_is_a_layer_as_any_other(peephole):
    layer = peephole(5, 7, 2, batch_first=True)
    assert str(layer) == "Peephole(5, 7, num_layers=2, batch_first=True)"
    x = torch.randn(3, 6, 5)
    output, (h, c) = layer(x, lengths=[6, 2, 4], reset=torch.zeros(3, 6))
    assert output.shape == (3, 6, 7)
    assert h.shape == c.shape == (2, 3, 7)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    peephole.check()


def test_a_check_compares_only_what_a_step_writes(functions):
    """The numbers in the room of absent parameters are zeros, not what the stack had there."""
    source = functions._source
    cell, room = source._cell, source._room
    dual, *_ = source._compared([0.5] * (room + cell.states))
    gates = cell.gates if cell.adds_gates else 2 * cell.gates
    rooms = room - cell.states - cell.parameters - gates
    assert rooms > 0
    assert dual[room - cell.states - rooms : room - cell.states] == [0.0] * rooms


# Of a cell that adds its gates, and of one that does not.
IMPURE = {
    "a summand": "static int calls = 0; now[0] = x[0] + h[0] + T(double(++calls));",
    "not added": "static double last = 1; now[0] = x[0] * T(last); last = last == 1 ? 2 : 1;",
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way != "not added")) for way in IMPURE]
)
def test_a_step_that_is_not_pure_is_found(way, tmp_path):
    text = cell_header("ImpureCell", 1, IMPURE[way])
    if way == "not added":
        text = text.replace("kAddsGates = true", "kAddsGates = false")
    header = tmp_path / "impure.h"
    header.write_text(text)
    cell = lltm_jit.recurrent_cell(header, "ImpureCell")
    message = r"impure.h:\d+: ImpureCell: step gives other numbers .* must be a pure function"
    with pytest.raises(lltm_jit.LltmJitError, match=message):
        cell.check()


def test_a_sequence_knows_a_cell_by_the_names_of_its_type_and_class(peephole):
    layer = peephole(3, 4)
    gates, weight = torch.randn(5, 2, 16), layer.weight_hh_l0
    args = gates, weight, None, layer.parameters_l0
    expected = recurrent_sequence(peephole.cell.name, *args)
    for name in ("Peephole", "PeepholeCell"):
        torch.testing.assert_close(recurrent_sequence(name, *args), expected)
    with pytest.raises(ValueError, match="expected the name of a cell, but got 'Peep'"):
        recurrent_sequence("Peep", *args)
