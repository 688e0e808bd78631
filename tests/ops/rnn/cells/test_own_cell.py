"""A cell of one's own: compiled, differentiated, edited, and refused at the user's line."""

import copy
import gc
import multiprocessing
import pickle
import re
from pathlib import Path

import pytest
import torch
from sequence_testing import cell_header, saved_and_loaded

import lltm_jit
from lltm_jit import native
from lltm_jit.ops.rnn._cell_text import CellText
from lltm_jit.ops.rnn.own_cell import OwnCell

# One gate and one state; FACTOR is what is edited.
PLAIN = cell_header("PlainCell", 1, "now[0] = T(FACTOR) * tanh(x[0] + h[0]);", "BACKWARD")
BACKWARD = """
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step_backward(
      const T (&x)[kGates], const T (&h)[kGates], const T (&old)[kStates],
      const T (&grad_now)[kStates], T (&grad_x)[kGates], T (&grad_h)[kGates],
      T (&grad_old)[kStates]) {
    const T y = tanh(x[0] + h[0]);
    grad_x[0] = grad_h[0] = grad_now[0] * T(FACTOR) * (T(1) - y * y);
    grad_old[0] = T(0);
  }
"""


def plain(factor: float = 1.0, backward: str = "") -> str:
    return PLAIN.replace("BACKWARD", backward).replace("FACTOR", str(factor))


def written(place, text: str = plain()):
    place.write_text(text)
    return place


def cell_of(header, text: str = plain(), **named) -> type[OwnCell]:
    """The class of a header with this text."""
    return lltm_jit.recurrent_cell(written(header, text), "PlainCell", **named)


@pytest.fixture(scope="module")
def plain_header(tmp_path_factory):
    header = tmp_path_factory.mktemp("cells") / "plain.h"
    yield header
    written(header)  # what the tests of other files reload


def test_an_edited_cell_is_in_every_layer_at_once(plain_header, monkeypatch):
    with monkeypatch.context() as there:
        there.chdir(plain_header.parent)
        cell = cell_of(Path(plain_header.name), name="Mine")
    layer = cell(2, 3)
    assert type(layer).__name__ == "Mine"
    x = torch.randn(1, 2, 2)
    before = layer(x)[0]
    written(plain_header, plain(2.0))
    assert torch.equal(layer(x)[0], before)
    cell.reload()
    torch.testing.assert_close(layer(x)[0], 2 * before)
    written(plain_header)
    lltm_jit.reload()
    assert torch.equal(layer(x)[0], before)


def test_a_second_call_leaves_the_classes_made_before_as_they_are(plain_header):
    first = cell_of(plain_header)
    layer, x = first(2, 3), torch.randn(4, 2, 2)
    before = layer(x)[0]
    (expected,) = torch.autograd.grad(layer(x)[0].sum(), layer.weight_ih_l0)
    second = cell_of(plain_header, plain(2.0))
    (gradient,) = torch.autograd.grad(before.sum(), layer.weight_ih_l0)
    assert torch.equal(gradient, expected)
    assert torch.equal(layer(x)[0], before)
    other = second(2, 3)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x[:1])[0], 2 * layer(x[:1])[0])
    first.reload()
    assert torch.equal(layer(x)[0], other(x)[0])
    written(plain_header)
    first.reload()
    assert torch.equal(layer(x)[0], before)
    assert not torch.equal(other(x)[0], before)


@pytest.mark.slow
def test_a_class_that_is_gone_is_not_reloaded(tmp_path):
    """Its name in exported programs is that of the first call that compiled."""
    header = tmp_path / "cell.h"
    with pytest.raises(lltm_jit.BuildError):
        cell_of(header, plain().replace("kStates", "kStatess"))
    cell = cell_of(header)
    assert re.fullmatch(r"PlainCell\.[0-9a-f]{8}", cell.cell.name)
    gc.collect()  # those of other tests
    count = len(native.when_reloaded)
    header.unlink()
    del cell
    lltm_jit.reload()
    assert len(native.when_reloaded) == count - 1


@pytest.mark.slow
def test_cells_with_other_include_paths_are_others(tmp_path):
    text, layers = '#include "factor.h"\n' + plain().replace("1.0", "kFactor"), []
    for factor in (1, 2):
        folder = tmp_path / str(factor)
        folder.mkdir()
        written(folder / "factor.h", f"constexpr double kFactor = {factor};\n")
        layers.append(cell_of(tmp_path / "cell.h", text, include_paths=[folder])(2, 3))
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(1, 2, 2)
    torch.testing.assert_close(layers[1](x)[0], 2 * layers[0](x)[0])


def test_layers_are_copied_and_pickled(plain_header):
    cell = cell_of(plain_header, name="Mine")
    layer, x = cell(2, 3), torch.randn(4, 2, 2)
    pickled = pickle.loads(pickle.dumps(layer))
    for each in (copy.deepcopy(layer), pickled, saved_and_loaded(torch, layer)):
        assert type(each) is cell
        assert torch.equal(each(x)[0], layer(x)[0])
    assert pickle.loads(pickle.dumps(cell)) is cell
    cell_of(plain_header, plain(2.0), name="Mine")  # an equal call, which makes another class
    assert type(pickle.loads(pickle.dumps(layer))) is cell


class Deeper(OwnCell):
    """What pickle finds by its name, as any other class."""


def test_a_subclass_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(Deeper)) is Deeper


def results_of(layers, x, queue):
    assert type(layers[0]) is type(layers[1])
    type(layers[0]).check()
    queue.put([layer(x)[0].tolist() for layer in layers])


def test_layers_in_a_spawned_process(plain_header):
    """The class is made again there, once, and with it comes the build from the cache."""
    cell = cell_of(plain_header)
    layers, x = [cell(2, 3), cell(2, 3)], torch.randn(4, 2, 2)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=results_of, args=(layers, x, queue))
    process.start()
    assert queue.get(timeout=120) == [layer(x)[0].tolist() for layer in layers]
    process.join()


@pytest.mark.slow
def test_a_cell_with_another_state_needs_other_layers(plain_header):
    cell = cell_of(plain_header)
    layer, x = cell(2, 3), torch.randn(1, 2, 2)
    before = layer(x)[0]
    for right, wrong, said in (
        (
            "kStates = 1",
            "kStates = 2",
            r"1 gate \(added\), 2 states .* made with 1 .*, 1 state ",
        ),
        ("Gates = true", "Gates = false", r"\(not added\), .* made with 1 gate \(added"),
    ):
        written(plain_header, plain().replace(right, wrong))
        with pytest.raises(lltm_jit.LltmJitError, match=said):
            cell.reload()
    assert torch.equal(layer(x)[0], before)


@pytest.mark.slow
def test_a_backward_step_of_its_own(plain_header):
    text = plain(2.0, BACKWARD.replace("FACTOR", "2.0"))
    cell = cell_of(plain_header, text)
    cell.check()
    layer = cell(2, 3, dtype=torch.double)
    x = torch.randn(4, 2, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], x)
    wrong = plain(2.0, BACKWARD.replace("FACTOR", "2.5"))
    cell = cell_of(plain_header, wrong)
    line = wrong.splitlines().index(next(s for s in wrong.splitlines() if "step_backward" in s)) + 1
    message = rf"plain.h:{line}: the gradient of x\[0\] is .*, but step\(\)'s is"
    with pytest.raises(lltm_jit.LltmJitError, match=message):
        cell.check()


@pytest.mark.slow
def test_gates_that_are_not_only_added(plain_header):
    text = plain().replace("x[0] + h[0]", "x[0] + h[0] * x[0]")
    cell = cell_of(plain_header, text)
    with pytest.raises(lltm_jit.LltmJitError, match=r"plain.h:4: now\[0\] is .* two parts, but"):
        cell.check()


# What is replaced in a header that is right, by what, and the error.
WRONG = {
    "its maths": ("T(1.0)", "oops", r"oops\W+was not declared.*--> plain\.h:8:"),
    "no such cell": ("PlainCell", "Other", r"^error: plain\.h has no type PlainCell"),
    "no states": (", kStates = 1", "", r"plain\.h:2: PlainCell: .* constexpr int kGates, kStates"),
    "a signature": ("const T (&old)[kStates], ", "", r"h:6: PlainCell: .* void step\(const T"),
    "a constant": (
        "T(1.0)",
        "0.5",
        r"^error: [^\n]*.T.\)\n.*--> plain\.h:8:.*write .* as T\(0.5\)",
    ),
    "an index": ("h[0]", "h[1]", r"^error: plain\.h:8: PlainCell: .* h\[1\], but h has 1 number$"),
    "no result": ("now[0] =", "const T y =", r"^error: plain\.h:6: .* does not write now\[0\]"),
}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no match for 'operator>' (operand types are 'lltm_jit::TensorValue' and 'int')", "where"),
        ("no match for 'operator+=' (operand types are 'Dual<lltm_jit::TensorValue, 3>'", "a + b"),
        ("no matching function for call to 'exp(lltm_jit::TensorValue)'", "without std::"),
        ("invalid operands to binary expression ('double' and 'const TensorValue')", "T(0.5)"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(said, told):
    text = CellText(Path("plain.h"), "plain.h", "PlainCell").placed(f"error: {said}\n   = log")
    assert told in text.splitlines()[1]
    assert "TensorValue" not in text


@pytest.mark.slow
@pytest.mark.parametrize("way", WRONG)
def test_what_is_wrong_is_told_at_the_users_line(plain_header, way, monkeypatch):
    right, wrong, message = WRONG[way]
    text = plain().replace(right, wrong)
    written(plain_header, text if "kStates = " in text else text.replace("kStates", "1"))
    monkeypatch.chdir(plain_header.parent)
    with pytest.raises(lltm_jit.BuildError) as raised:
        lltm_jit.recurrent_cell(plain_header.name, "PlainCell")
    assert re.search(message, str(raised.value), re.DOTALL), str(raised.value)


def test_what_is_no_header(tmp_path):
    with pytest.raises(lltm_jit.BuildError, match=r"there is no header .*nothing\.h"):
        lltm_jit.recurrent_cell(tmp_path / "nothing.h", "Cell")
    with pytest.raises(lltm_jit.BuildError, match="the path of a header, but got its text"):
        lltm_jit.recurrent_cell(plain(), "PlainCell")
