"""The table and the clocks of all benchmarks: what a reader sees, files, and busy machines."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.shared import busy, table, times
from benchmarks.shared.table import Row
from benchmarks.shared.times import GRAPH, HOST, PROCESSORS, Times, constant

QUIET = Times(0.9, 0.95, 1.0, 1.05, 9)
ROW = Row("float32, cpu", "B 1, H 2", "forward", "fused", {HOST: QUIET}, {"reference": None})
OTHER = replace(ROW, name="reference", times={HOST: constant(4.0)}, beside={})


def shown(capsys, *groups):
    table.show(groups, 10)
    return capsys.readouterr().out.splitlines()[1:]


def test_a_table_is_printed_group_by_group(capsys):
    second = [replace(row, case="B 16, H 2") for row in (ROW, OTHER)]
    title, columns, *lines = shown(capsys, [ROW, OTHER], second)
    assert title == "float32, cpu"
    assert " ".join(columns.split()) == "case phase as called IQR beside others"
    assert [" ".join(line.split()) for line in lines] == [
        "B 1, H 2 forward fused 1.000 s 0.100 s 0.25 of reference",
        "reference 4.000 s -",
        "B 16, H 2 forward fused 1.000 s 0.100 s 0.25 of reference",
        "reference 4.000 s -",
    ]
    starts = [columns.index("as called"), columns.index("beside others")]
    assert starts == [lines[0].index("1.000 s"), lines[0].index("0.25 of")]


def test_every_kind_of_figure_has_its_column(capsys):
    times = {GRAPH: constant(2e-6), HOST: constant(30e-6)}
    more = {"floor": 1e-6, "figures": {"GB/s": 12.34, "error": 1.23e-4}, "check": "match"}
    ours = replace(ROW, times=times, beside={"reference": 0.21}, **more)
    theirs = replace(OTHER, times={GRAPH: constant(8e-6), HOST: constant(60e-6)})
    _, columns, line, _ = shown(capsys, [ours, theirs])
    words = "case phase check in a graph IQR as called IQR floor share GB/s error beside others"
    assert columns.split() == words.split()
    assert line.split("  ")[-1].strip() == "0.25 of reference (0.50 as called), goal 0.21"
    figures = "match 2.000 us - 30.0 us - 1.000 us 50% 12.3 1.2e-04"
    assert f" fused {figures} 0.25 of reference" in " ".join(line.split())
    assert table.missed([ours, theirs]) == [
        "float32, cpu, B 1, H 2, forward, fused: 0.25 of reference (0.50 as called), goal 0.21"
    ]
    assert table.missed([replace(ours, beside={"reference": 0.25}), theirs]) == []
    slow = {**times, HOST: constant(61e-6)}  # than theirs, in the way of calling without a goal
    met = replace(ours, beside={"reference": 0.25})
    assert len(table.missed([replace(met, times=slow), theirs])) == 1
    worse = replace(ours, beside={"reference": 0.1}, case="another")
    both = table.missed([ours, theirs, worse, replace(theirs, case="another")])
    assert ["another" in each for each in both] == [True, False]


def test_a_goal_is_for_the_group_of_its_row():
    slow = replace(ROW, times={HOST: constant(9.0)}, beside={"reference": 1.0})
    other = replace(OTHER, case="another")
    assert table.missed([slow, other]) == []
    assert len(table.missed([slow, OTHER, other])) == 1


def test_wrong_results_are_named():
    assert table.wrong([replace(ROW, check="error 1.0e-02"), ROW, OTHER]) == [
        "float32, cpu, B 1, H 2, forward, fused: error 1.0e-02"
    ]


@pytest.mark.parametrize("busy", [Times(1.0, 1.0, 2.0, 3.0, 9), constant(2.0, busy=True)])
def test_figures_of_a_busy_machine_are_marked(capsys, busy):
    marked = replace(ROW, times={HOST: busy}, floor=1.0)
    *_, first, second, note = shown(capsys, [replace(ROW, floor=1.0), marked])
    assert "~" not in first
    assert " ~2.000 s " in second
    assert " ~50%" in second
    assert note.startswith("~ unreliable: the machine was busy")


def test_no_share_is_above_100_percent(capsys):
    *_, line, note = shown(capsys, [replace(ROW, floor=1.98)])
    assert line.endswith(" >100%")
    assert note.startswith(">100%: faster than ")
    assert shown(capsys, [replace(ROW, floor=1.004)])[-1].endswith(" 100%")


@pytest.mark.parametrize(
    ("median", "spread", "mark"),
    [(2.0, 0.1, ["2.00", "SLOWER"]), (0.5, 0.05, ["0.50", "faster"]), (1.1, 0.1, ["s", "1.10"])],
)
def test_comparison_marks_what_is_beyond_noise(median, spread, mark):
    now = Times(median - spread, median - spread, median, median + spread, 9)
    (line,) = table.comparison([ROW], [replace(ROW, times={HOST: now})]).splitlines()[1:]
    assert line.split()[-2:] == mark
    busy = replace(ROW, times={HOST: replace(now, busy=True)})
    assert table.comparison([ROW], [busy]).splitlines()[1].endswith("  ~")


def test_comparison_of_other_cases():
    other = replace(ROW, times={PROCESSORS: QUIET})
    assert table.comparison([OTHER, other], [ROW]) == "no case is in both runs"


def test_a_file_is_shown_compared_and_drawn(capsys, tmp_path):
    file, drawing = tmp_path / "gpu.json", tmp_path / "plot.svg"
    rows = [replace(ROW, check="error 1.0e-02"), OTHER]
    table.save(file, {"GPU": "a GPU"}, rows)
    assert table.load(file) == ({"GPU": "a GPU"}, rows)
    words = ["sequence", "--from", str(file), "--compare", str(file), "--plot", str(drawing)]
    assert main([*words, "--json", str(tmp_path / "again.json")]) == 1  # for the error
    header, printed, ratios, goals, wrong = capsys.readouterr().out.split("\n\n")
    assert header == "GPU: a GPU"
    assert printed.splitlines()[0] == "float32, cpu"
    assert [line.split()[-1] for line in ratios.splitlines()[1:]] == ["1.00", "1.00"]
    assert goals == "no goal is missed"
    assert wrong.splitlines()[0] == "wrong:"
    assert drawing.read_text().startswith("<?xml")
    assert (tmp_path / "again.json").read_text() == file.read_text()


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}', '{"header": {}, "rows": [1]}'])
@pytest.mark.parametrize("option", ["--from", "--compare"])
def test_another_kind_of_file(capsys, tmp_path, text, option):
    file = tmp_path / "other.json"
    file.write_text(text)
    assert main(["cell", option, str(file)]) == 1
    assert f"{file} is not a file that this benchmark's --json wrote" in capsys.readouterr().err


def test_a_pipe_that_is_closed_is_no_error(tmp_path, monkeypatch):
    """As by `| head`. And the command starts no build, which would be measured, too."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    file = tmp_path / "figures.json"
    table.save(file, {}, [replace(ROW, case=str(number)) for number in range(2000)])
    command = [sys.executable, "-m", "benchmarks", "--from", file]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.communicate()[1] == ""
    assert process.returncode == 1
    assert not (tmp_path / "builds").exists()


CPU = torch.device("cpu")


def test_functions_take_turns_and_parts_of_calls_are_counted():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in ("one", "two")}
    found = times.measure(functions, 1e-4, [HOST], {"two": 0.5})
    assert list(found) == ["one", "two"]
    assert {mode for each in found.values() for mode in each} == {HOST}
    assert found["one"][HOST].count >= 7  # quartiles need them
    assert calls.index("two") < len(calls) - 1 - calls[::-1].index("one")


def test_a_peak_that_is_exceeded_is_measured_again(monkeypatch):
    found = [(1.0, 9.0), (1.5, 8.0), (3.0, 7.0), (4.0, 6.0)]
    monkeypatch.setattr(times, "_peaks", {})
    monkeypatch.setattr(times, "_peak", lambda *_: found.pop(0))
    assert times.peak(CPU, torch.float) == (1.0, 9.0)
    assert times.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert times.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert len(found) == 1


def test_quartiles():
    assert times.summary([5.0, 1.0, 2.0, 4.0, 3.0]) == Times(1.0, 2.0, 3.0, 4.0, 5)


SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells it")
def test_waiting_for_a_processor_is_seen():
    """Two programs on one processor."""
    measuring = f"""
import os, runpy, subprocess, sys
busy = runpy.run_path({busy.__file__!r})
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
other = subprocess.Popen([sys.executable, "-c", {SPIN.format(9)!r}])
waiting, others = busy["Waiting"](), busy["Others"]()
{SPIN.format(0.7)}
print(waiting.share(), others.share())
other.kill()
"""
    done = subprocess.run([sys.executable, "-c", measuring], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    waited, others = map(float, done.stdout.split())
    assert waited > 0.2
    assert others > 0.2
