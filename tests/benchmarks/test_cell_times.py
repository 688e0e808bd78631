"""`python -m benchmarks cell`, at small sizes."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from benchmarks import other_cell
from benchmarks.__main__ import main
from benchmarks.cell import PHASES, Case
from lltm_jit import functional
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

QUICK = ["cell", "-b", "2", "-f", "3", "-s", "4", "--seconds", "0.001"]

OPPONENT = """
#define AT_PER_OPERATOR_HEADERS  // no wide ones, which would take most of a minute
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <torch/csrc/utils/pybind.h>
using at::Tensor;

std::vector<Tensor> forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                            Tensor old_cell) {
  auto X = at::cat({old_h, input}, 1);
  auto gate_weights = at::addmm(bias, X, weights.t());
  auto gates = gate_weights.chunk(3, 1);
  auto i = at::sigmoid(gates[0]), o = at::sigmoid(gates[1]), c = at::elu(gates[2]);
  auto new_cell = old_cell + i * c;
  return {o * at::tanh(new_cell), new_cell, i, o, c, X, gate_weights};
}

std::vector<Tensor> backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor i, Tensor o,
                             Tensor c, Tensor X, Tensor gate_weights, Tensor weights) {
  auto t = at::tanh(new_cell);
  auto d_cell = grad_cell + o * (1 - t * t) * grad_h;
  auto d_gates = at::cat({c * d_cell * i * (1 - i), t * grad_h * o * (1 - o),
                          i * d_cell * at::where(c > 0, at::ones_like(c), c + 1)}, 1);
  auto d_X = d_gates.mm(weights);
  const auto H = grad_h.size(1);
  return {d_X.slice(1, 0, H), d_X.slice(1, H), d_gates.t().mm(X), d_gates.sum(0, true),
          SCALE * d_cell};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
"""


def test_tables_of_every_implementation_and_phase(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--json", str(file)]) == 0
    header, table, goals = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    assert goals == "no goal is missed\n"
    title, columns, *rows = table.splitlines()
    assert title == "float32, cpu"
    words = "case phase check as called IQR floor share GFLOP/s GB/s beside others"
    assert columns.split() == words.split()
    names = ["reference", "aten", "fused"]
    saved = json.loads(file.read_text())["rows"]
    assert [(row["phase"], row["name"]) for row in saved] == [
        (phase, name)
        for phase in PHASES
        for name in [*names, *(["addmm alone"] if phase == PHASES[0] else [])]
    ]
    assert [row["check"] for row in saved[:4]] == ["match"] * 3 + ["-"]
    assert [row["times"]["as called"]["median"] for row in saved[:4]] == [1e-3, 2e-3, 3e-3, 4e-3]
    case = Case(2, 3, 4, torch.float, torch.device("cpu"))
    operations, size = case.operations(PHASES[0]), case.bytes(PHASES[0])
    assert saved[1]["figures"] == {"GFLOP/s": operations / 2e6, "GB/s": size / 2e6}
    assert saved[1]["floor"] == max(operations, size) / 1e9
    assert rows[0].startswith("B 2, I 3, H 4 ")
    assert rows[1].endswith(" 2.00 of reference")


def test_a_wrong_implementation_is_named_and_fails(capsys, monkeypatch, quick_clock):
    right = functional.lltm_cell

    def wrong(*operands, impl):
        new_h, new_cell = right(*operands, impl=impl)
        return (new_h * 1.01, new_cell) if impl == "aten" else (new_h, new_cell)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    assert main([*QUICK, "-d"]) == 1
    rows = capsys.readouterr().out
    assert re.search(r" aten +error 1\.\de-02 ", rows)
    assert re.search(r" fused +match ", rows)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_16_bit_types_match_within_their_precision(capsys, dtype, quick_clock):
    assert main([*QUICK, "--dtype", dtype]) == 0
    assert "error" not in capsys.readouterr().out


@pytest.mark.slow
def test_an_opponent_is_built_checked_and_comes_first(capsys, tmp_path, idle):
    directory = tmp_path / "theirs"
    directory.mkdir()
    (directory / "theirs.cpp").write_text(OPPONENT)
    against = ["--against", str(directory)]
    assert main([*QUICK, *against, "--define", "SCALE=1"]) == 0
    _, *rows = capsys.readouterr().out.split("\n\n")[1].splitlines()[1:]
    assert re.search(r" theirs +match ", rows[0])
    assert " reference " in rows[1]
    assert rows[1].endswith(" of theirs")
    assert main([*QUICK, *against, "--define", "SCALE=2"]) == 1
    assert re.search(r" theirs +error ", capsys.readouterr().out)


@pytest.mark.parametrize("scale", [1, 2])
def test_an_opponent_is_differentiated_with_its_own_backward(scale):
    """A module as the tutorial's, here of functions in Python."""

    def forward(input, weights, bias, old_h, old_cell):
        return [*lltm_cell_reference(input, weights, bias, old_h, old_cell), input, bias]

    def backward(grad_h, grad_cell, new_cell, input, bias, weights):
        operands = [input, weights, bias, grad_h, grad_cell]  # of the right shapes
        return [scale * operands[i] for i in (3, 0, 1, 2, 4)]

    case = Case(2, 3, 4, torch.double, torch.device("cpu"))
    operands = case.operands()
    module = SimpleNamespace(forward=forward, backward=backward)
    outputs = other_cell.wrap(module, case.device)(*operands)
    grads = [torch.ones_like(output) for output in outputs]
    found = torch.autograd.grad(outputs, operands, grads)
    expected = [*operands[:3], *grads]
    assert all(torch.equal(f, scale * e) for f, e in zip(found, expected, strict=True))


def test_an_opponent_that_is_not_there(capsys, tmp_path):
    assert main([*QUICK, "--against", str(tmp_path / "none")]) == 1
    assert "expected --against to be a directory, but got " in capsys.readouterr().err


def test_operations_and_bytes_by_hand():
    case = Case(2, 3, 4, torch.float32, torch.device("cpu"))
    assert case.operations(PHASES[0]) == 2 * 2 * 12 * 7
    assert case.operations(PHASES[2]) == 3 * case.operations(PHASES[1])
    weights, input, state, gates = 12 * 7 + 12, 2 * 3, 2 * 2 * 4, 3 * 2 * 4
    assert case.bytes(PHASES[0]) == 4 * (weights + input + 2 * state)
    assert case.bytes(PHASES[1]) == case.bytes(PHASES[0]) + 4 * gates
