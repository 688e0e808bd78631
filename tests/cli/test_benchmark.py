"""The tables of `python -m lltm_jit benchmark`, at small sizes."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from lltm_jit import functional
from lltm_jit.cli import _measure, _plots, _report, main
from lltm_jit.cli._measure import PHASES, Case, Times

CPU = torch.device("cpu")
QUICK = ["-b", "2", "-f", "3", "-s", "4", "--seconds", "0.005"]

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


def test_tables_of_every_implementation_and_phase(capsys, idle):
    assert main(["benchmark", *QUICK]) == 0
    header, *tables = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    assert len(tables) == len(PHASES)
    for phase, table in zip(PHASES, tables, strict=True):
        title, columns, *rows = table.splitlines()
        assert title == f"{phase}: batch 2, input 3, hidden 4, float32, cpu"
        assert columns.startswith("implementation  check  median")
        names = [row.split("  ")[0] for row in rows]
        alone = ["addmm alone"] if phase == PHASES[0] else []
        assert names == ["reference", "aten", "fused", *alone]
        assert "1.00x" in rows[0]
        assert all("match" in row for row in rows[:3])


def test_a_wrong_implementation_is_named_and_fails(capsys, monkeypatch):
    right = functional.lltm_cell

    def wrong(*operands, impl):
        new_h, new_cell = right(*operands, impl=impl)
        return (new_h * 1.01, new_cell) if impl == "aten" else (new_h, new_cell)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    assert main(["benchmark", *QUICK, "-d"]) == 1
    rows = capsys.readouterr().out
    assert re.search(r"^aten +error 1\.\de-02 ", rows, re.MULTILINE)
    assert re.search(r"^fused +match ", rows, re.MULTILINE)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_16_bit_types_match_within_their_precision(capsys, dtype):
    assert main(["benchmark", *QUICK, "--dtype", dtype]) == 0
    assert "error" not in capsys.readouterr().out


def test_json_is_what_compare_reads(capsys, tmp_path, idle):
    file = tmp_path / "figures.json"
    assert main(["benchmark", *QUICK, "--json", str(file)]) == 0
    saved = json.loads(file.read_text())
    assert saved["header"]["torch"] == torch.__version__
    assert len(saved["rows"]) == 3 * len(PHASES) + 1
    assert saved["rows"][0]["host"]["median"] > 0
    capsys.readouterr()
    assert main(["benchmark", *QUICK, "--compare", str(file)]) == 0
    ratios = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert "now/before" in ratios[0]
    assert len(ratios) == 1 + len(saved["rows"])


def row(median, spread, implementation="fused"):
    times = Times(median - spread, median - spread, median, median + spread, 9)
    sizes = {"batch_size": 1, "input_size": 2, "hidden_size": 3}
    rates = {"gflops": 1.0, "gflops_share": 0.1, "gbytes": 1.0, "gbytes_share": 0.1}
    names = {"device": "cpu", "dtype": "float32", "phase": "forward", "check": "match"}
    return _report.Row(
        **names, **sizes, **rates, implementation=implementation, host=times, graph=None
    )


@pytest.mark.parametrize(
    ("now", "mark"),
    [
        (row(2.0, 0.1), ["2.00", "SLOWER"]),
        (row(0.5, 0.05), ["0.50", "faster"]),
        (row(1.1, 0.1), ["us", "1.10"]),
    ],
)
def test_comparison_marks_what_is_beyond_noise(now, mark):
    (line,) = _report.comparison([row(1.0, 0.1)], [now]).splitlines()[1:]
    assert line.split()[-2:] == mark


def test_comparison_of_other_cases():
    assert _report.comparison([row(1, 0, "aten")], [row(1, 0)]) == "no case is in both runs"


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}', '{"header": {}, "rows": [1]}'])
def test_compare_with_another_kind_of_file(capsys, tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    assert main(["benchmark", *QUICK, "--compare", str(file)]) == 1
    assert f"{file} is not a file that this benchmark's --json wrote" in capsys.readouterr().err


def test_figures_of_a_busy_machine_are_marked():
    quiet = row(1.0, 0.1)
    spread, waited = Times(1.0, 1.0, 2.0, 3.0, 9), Times(2.0, 2.0, 2.0, 2.0, 9, waited=0.3)
    for busy in (replace(quiet, host=spread), replace(quiet, host=waited)):
        first, second, note = _report.tables([quiet, busy]).splitlines()[2:]
        assert "~" not in first
        assert re.search(r" match +~2000000.0 us .* us +~0\.50x +~1\.0 \(10%\) +~1", second)
        assert note.startswith("~ unreliable: the machine was busy")
        assert _report.comparison([quiet], [busy]).splitlines()[1].endswith(" 2.00        ~")


def test_no_share_is_above_100_percent():
    table = _report.tables([replace(row(1.0, 0.1), gflops_share=1.98, gbytes_share=1.004)])
    assert table.splitlines()[2].endswith(" 1.0 (>100%)  1.0 (100%)")
    assert table.splitlines()[3].startswith(">100%: ")


def test_a_peak_that_is_exceeded_is_measured_again(monkeypatch):
    found = [(1.0, 9.0), (1.5, 8.0), (3.0, 7.0), (4.0, 6.0)]
    monkeypatch.setattr(_measure, "_peaks", {})
    monkeypatch.setattr(_measure, "_peak", lambda *_: found.pop(0))
    assert _measure.peak(CPU, torch.float) == (1.0, 9.0)
    assert _measure.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert _measure.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert len(found) == 1


SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells it")
def test_waiting_for_a_processor_is_seen():
    """Two programs on one processor."""
    measuring = f"""
import os, subprocess, sys
from lltm_jit.cli._busy import Others, Waiting
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
other = subprocess.Popen([sys.executable, "-c", {SPIN.format(9)!r}])
waiting, others = Waiting(), Others()
{SPIN.format(1)}
print(waiting.share(), others.share())
other.kill()
"""
    done = subprocess.run([sys.executable, "-c", measuring], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    waited, others = map(float, done.stdout.split())
    assert waited > 0.2
    assert others > 0.2


def test_figures_of_a_file_are_shown_and_drawn(capsys, tmp_path):
    figures, drawing = tmp_path / "gpu.json", tmp_path / "plot.svg"
    rows = [replace(row(1.0, 0.1), graph=row(0.5, 0.01).host), row(1.0, 0.1, "aten")]
    _report.save(figures, {"GPU": "a GPU"}, rows)
    assert main(["benchmark", "--from", str(figures), "--plot", str(drawing)]) == 0
    assert capsys.readouterr().out == f"GPU: a GPU\n\n{_report.tables(rows)}\n"
    assert drawing.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("least", "most", "ticks"),
    [
        (12, 18, [10, 20]),
        (3, 70, [2, 5, 10, 20, 50, 100]),
        (10, 10, [10, 20, 50]),
        (0.3, 40000, [0.1, 1, 10, 100, 1000, 10000, 100000]),
    ],
)
def test_ticks_of_a_plot_are_round_numbers_around_the_times(least, most, ticks):
    assert _plots.round_numbers(least, most) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--plot", "x.gif"], "expected a name that ends in one of .png, .svg, .pdf, "),
        (["--seconds", "-1"], "expected seconds above 0, but got '-1'"),
        (["--layer", "GRU"], "--layer is an option of sequence, not of cell"),
        (["jit", "--json", "x"], "--json is an option of cell, sequence, stylegan, not of jit"),
        (["stylegan", "--from", "x", "-r", "5"], "--runs is an option of py, cpp, cuda, not of"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_measuring(capsys, words, error):
    with pytest.raises(SystemExit):
        main(["benchmark", *words])
    said = capsys.readouterr()
    assert f"error: {error}" in said.err.replace("argument --plot: ", "").replace(
        "argument --seconds: ", ""
    )
    assert said.out == ""


@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_a_file_where_none_can_be_is_refused_before_the_measuring(capsys, tmp_path, flag):
    with pytest.raises(SystemExit):
        main(["benchmark", *QUICK, flag, str(tmp_path / "none" / "file.png")])
    said = capsys.readouterr()
    assert f"argument {flag}: there is no directory {tmp_path / 'none'}" in said.err
    assert said.out == ""


def test_a_plot_without_matplotlib_is_refused_before_the_measuring(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(_plots, "find_spec", lambda name: None)
    assert main(["benchmark", *QUICK, "--plot", str(tmp_path / "plot.png")]) == 1
    said = capsys.readouterr()
    assert "--plot needs matplotlib: `python -m pip install matplotlib`" in said.err
    assert "forward" not in said.out


def test_plot_is_drawn(tmp_path):
    file = tmp_path / "plot.png"
    rows = [row(1.0, 0.1, "aten"), row(1.01, 0.1)]
    _report.plot(file, {"CPU": "one"}, rows)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_an_opponent_is_built_checked_and_comes_first(capsys, tmp_path, idle):
    directory = tmp_path / "theirs"
    directory.mkdir()
    (directory / "theirs.cpp").write_text(OPPONENT)
    against = ["--against", str(directory)]
    assert main(["benchmark", "cell", *QUICK, *against, "--define", "SCALE=1"]) == 0
    tables = capsys.readouterr().out.split("\n\n")[1:]
    for table in tables:
        first, second = table.splitlines()[2:4]
        assert re.match(r"theirs +match .*1\.00x", first)
        assert second.startswith("reference")
    assert main(["benchmark", "cell", *QUICK, *against, "--define", "SCALE=2"]) == 1
    assert re.search(r"^theirs +error ", capsys.readouterr().out, re.MULTILINE)


def test_an_opponent_that_is_not_there(capsys, tmp_path):
    assert main(["benchmark", "cell", *QUICK, "--against", str(tmp_path / "none")]) == 1
    assert "expected --against to be a directory, but got " in capsys.readouterr().err


def test_operations_and_bytes_by_hand():
    case = Case(2, 3, 4, torch.float32, torch.device("cpu"))
    assert case.operations(PHASES[0]) == 2 * 2 * 12 * 7
    assert case.operations(PHASES[2]) == 3 * case.operations(PHASES[1])
    weights, input, state, gates = 12 * 7 + 12, 2 * 3, 2 * 2 * 4, 3 * 2 * 4
    assert case.bytes(PHASES[0]) == 4 * (weights + input + 2 * state)
    assert case.bytes(PHASES[1]) == case.bytes(PHASES[0]) + 4 * gates


def test_quartiles():
    assert _measure.summary([5.0, 1.0, 2.0, 4.0, 3.0]) == Times(1.0, 2.0, 3.0, 4.0, 5)
