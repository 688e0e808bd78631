"""The tables of `python -m lltm_jit benchmark sequence`, at small sizes."""

import json
from dataclasses import replace

import pytest
import torch

from lltm_jit.cli import _plots, _report, _sequence_benchmark, _sequence_report, main
from lltm_jit.cli._benchmark_arguments import LAYERS
from lltm_jit.cli._measure import Times
from lltm_jit.cli._recorder import Recorder
from lltm_jit.cli._sequence_cases import (
    BACKWARD,
    FORWARD,
    LOOP,
    MODULES,
    OURS,
    PHASES,
    Case,
    gpu_floor,
    operations,
)

CPU, GPU, META = (torch.device(name) for name in ("cpu", "cuda", "meta"))
CASE = Case(2, 8, 3, torch.float, CPU)
QUICK = ["benchmark", "sequence", "-b", "2", "-s", "8", "--steps", "3", "--seconds", "0.001"]


@pytest.fixture
def quick_clock(monkeypatch):
    """Every function runs once, and takes as many milliseconds as its place in the list says."""

    def take_turns(timers, seconds, calls):
        for timer in timers:
            timer.timeit(1)
        return [flat((1 + i) * 1e-3 / n) for i, n in enumerate(calls)]

    monkeypatch.setattr(_sequence_benchmark._measure, "take_turns", take_turns)
    monkeypatch.setattr(
        _sequence_benchmark._measure, "peak", lambda device, dtype, operations: (1e9, 1e9)
    )


def flat(seconds):
    return Times(seconds, seconds, seconds, seconds, 9)


def names(table):
    """Phase and layer of its rows."""
    return [(row[11:29].strip(), row[31:36].strip()) for row in table.splitlines()[2:]]


def test_the_command_knows_every_layer():
    assert tuple(OURS) == LAYERS


def test_tables_and_file(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--json", str(file)]) == 0
    header, *tables, goals = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    assert goals == "no goal is missed\n"  # there is none at this size
    for dtype, table in zip(("float32", "bfloat16"), tables, strict=True):
        title, columns, *rows = table.splitlines()
        assert title == f"{dtype}, cpu, 3 steps, us a step"
        words = "B, H phase layer ours IQR torch IQR ratio goal of LLTM goal floor share"
        assert columns.split() == [*words.split(), "loop", "of", "cells", "ratio", "check"]
        assert names(table) == [(phase, layer) for phase in PHASES for layer in OURS]
        assert all(row.startswith("2, 8 ") and row.endswith("match") for row in rows)
    saved = json.loads(file.read_text())["rows"]
    assert [row["layer"] for row in saved] == 2 * 2 * list(OURS)
    # In turns: the LLTM, the LSTM, the GRU, torch's two, the loop; milliseconds over three steps.
    lltm, lstm, gru = saved[:3]
    assert [row["ours"]["median"] for row in saved[:3]] == [i * 1e-3 / 3 for i in (1, 2, 3)]
    assert lltm["torch"] == lstm["torch"]
    assert gru["torch"]["median"] == 5e-3 / 3
    assert lltm["loop"]["median"] == 6e-3 / 3
    assert (lstm["loop"], lltm["eager"]) == (None, None)
    assert lstm["lltm"] == lltm["ours"]


def test_one_layer(capsys, quick_clock):
    assert main([*QUICK, "--layer", "GRU", "--dtype", "double"]) == 0
    (table,) = capsys.readouterr().out.split("\n\n")[1:-1]
    assert names(table) == [(phase, "GRU") for phase in PHASES]


def test_a_wrong_result_is_marked_and_fails(capsys, monkeypatch, quick_clock):
    right = OURS["LSTM"].forward

    def wrong(layer, x):
        output, state = right(layer, x)
        return output * 1.01, state

    monkeypatch.setattr(OURS["LSTM"], "forward", wrong)
    assert main([*QUICK, "--dtype", "float"]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert [" LSTM " in row for row in rows if " error 1." in row] == [True, True]


@pytest.mark.parametrize("name", MODULES)
def test_every_phase_does_what_it_says(name):
    forward = CASE.step(name, FORWARD)()
    assert forward[0].shape == (3, 2, 8)
    assert not forward[0].requires_grad
    gradients = CASE.step(name, BACKWARD)()
    shapes = [parameter.shape for parameter in CASE.module(name).parameters()]
    assert [gradient.shape for gradient in gradients] == [(3, 2, 8), *shapes]
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("layer", OURS)
def test_the_kernels_to_compile_are_found_without_a_gpu(layer):
    found = []
    for phase in PHASES:
        step = replace(CASE, device=META).step(layer, phase)
        with Recorder() as recorder:
            step()
        found += [function.__name__ for function, _ in recorder.calls]
    assert found == [
        "recurrent_sequence.default",
        "recurrent_sequence_forward.default",
        "recurrent_sequence_backward.default",
    ]


def test_operations_by_hand():
    products = 2 * (3 * 8) * (8 + 8)  # of the LLTM: two rows, three gates, input and output
    assert operations(CASE, "LLTM", FORWARD) == 2 * products
    assert operations(CASE, "LLTM", BACKWARD) == 6 * products
    assert operations(CASE, "LSTM", FORWARD) * 3 == operations(CASE, "LLTM", FORWARD) * 4


def of_gpu(batch_size, hidden_size, dtype=torch.half, layer="LLTM", phase=FORWARD):
    """The floor, in microseconds."""
    return 1e6 * gpu_floor(Case(batch_size, hidden_size, 256, dtype, GPU), layer, phase)


@pytest.mark.parametrize(
    ("sizes", "prototype"),
    [
        ((16, 128), 0.357 + 0.024),
        ((16, 256), 0.503 + 0.024),
        ((16, 512), 0.647 + 0.050),
        ((64, 512), 0.893 + 0.170),
        ((128, 512), 1.67 + 0.337),
        ((16, 768), 1.11 + 0.096),
    ],
)
def test_no_kernel_that_was_measured_is_below_the_floor(sizes, prototype):
    """Of a prototype on an H200; the second number is the input's product."""
    assert 0.5 * prototype < of_gpu(*sizes) < prototype


def test_the_floor_grows_with_the_work():
    assert of_gpu(16, 512) < of_gpu(16, 512, layer="LSTM") < of_gpu(64, 512, layer="LSTM")
    assert of_gpu(16, 512) < of_gpu(16, 512, torch.float) < of_gpu(16, 512, torch.double)
    assert of_gpu(16, 512, phase=BACKWARD) > 2 * of_gpu(16, 512)
    assert of_gpu(16, 2048) > 0.95  # no cluster holds the weights: the grid meets


def row(layer="LLTM", ours=1e-6, theirs=4e-6, **named):
    given = {
        "phase": FORWARD, "device": "cuda", "dtype": "float16", "batch_size": 16,
        "hidden_size": 128, "steps": 256, "check": "match", "floor": 0.25e-6, "lltm": None,
        "eager": flat(2e-6), "eager_torch": flat(4e-6), "loop": None,
    }  # fmt: skip
    return _sequence_report.Row(layer, ours=flat(ours), torch=flat(theirs), **{**given, **named})


def test_ratios_goals_and_shares():
    lltm, lstm = row(), row("LSTM", 1.5e-6, lltm=flat(1e-6))
    assert (lltm.ratio, lltm.goal, lltm.of_lltm, lltm.share) == (0.25, 0.21, None, 0.25)
    assert (lstm.goal, lstm.of_lltm, lstm.goal_of_lltm) == (None, 1.5, 1.4)
    assert row(phase=BACKWARD, dtype="bfloat16").goal == 0.11
    assert row(hidden_size=100).goal is None
    on_cpu = {"device": "cpu", "dtype": "float32", "hidden_size": 512}
    assert [row(layer, **on_cpu).goal for layer in OURS] == [0.75, 0.9, None]
    assert _sequence_report.above([lltm, lstm, row(ours=0.8e-6)]) == [
        "LLTM float16, forward, B 16, H 128: 0.25 of nn.LSTM, goal 0.21",
        "LSTM float16, forward, B 16, H 128: 1.50 of the LLTM, goal 1.40",
    ]


def test_a_line_of_a_gpu():
    columns = _sequence_report.heading(row()).splitlines()[1]
    line = _sequence_report.line(row("LSTM", 1.5e-6, lltm=flat(1e-6)))
    assert columns.split()[-4:] == ["eager", "torch", "ratio", "check"]
    figures = "1.500 0.000 4.000 0.000 0.38 - 1.50 1.40 0.250 17% 2.000 4.000 0.50 match"
    assert line.split() == ["16,", "128", "forward", "LSTM", *figures.split()]
    assert [columns.index(name) for name in ("share", "check")] == [
        line.index(cell) for cell in ("17%", "match")
    ]


def test_plot_is_drawn(tmp_path):
    file = tmp_path / "plot.png"
    rows = [row(layer, hidden_size=h, phase=p) for layer in OURS for h in (1, 2) for p in PHASES]
    _sequence_report.plot(file, {"CPU": "one"}, rows)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_plot_has_times_in_a_graph_beside_those_of_the_host():
    rows = [row(layer, hidden_size=h) for layer in OURS for h in (1, 2)]
    in_graph, host = (_sequence_report._lines(rows, graph) for graph in (True, False))
    assert set(in_graph) == set(host) == {*OURS, "nn.LSTM", "nn.GRU"}
    assert (in_graph["LSTM"][2], host["LSTM"][2]) == (flat(1e-6), flat(2e-6))


def test_figures_of_a_busy_machine_are_marked(capsys):
    busy = replace(flat(1.5e-6), waited=0.2)
    quiet = row("LSTM", lltm=flat(1e-6))
    _sequence_report.show([quiet, replace(quiet, ours=busy)])
    first, second, note = capsys.readouterr().out.splitlines()[3:]
    assert "~" not in first
    figures = "~1.500 0.000 4.000 0.000 ~0.38 - ~1.50 1.40 0.250 ~17% 2.000 4.000 0.50 match"
    assert second.split()[4:] == figures.split()
    assert note.startswith("~ unreliable: the machine was busy")
    assert _sequence_report.above([replace(quiet, ours=busy)]) == [
        "LSTM float16, forward, B 16, H 128: ~1.50 of the LLTM, goal 1.40"
    ]


def test_no_share_of_the_floor_is_above_100_percent(capsys):
    _sequence_report.show([row(floor=2e-6)])
    *_, line, note = capsys.readouterr().out.splitlines()
    assert " >100% " in line
    assert note == ">100%: faster than the floor, which is that of an H200"


def test_figures_of_a_file_are_shown_and_drawn(capsys, tmp_path):
    figures, drawing = tmp_path / "gpu.json", tmp_path / "plot.svg"
    rows = [row(layer, phase=phase) for phase in PHASES for layer in OURS]
    _report.save(figures, {"GPU": "a GPU"}, rows)
    command = ["benchmark", "sequence", "--from", str(figures), "--plot", str(drawing)]
    assert main(command) == 0
    header, table, _ = capsys.readouterr().out.split("\n\n")
    assert header == "GPU: a GPU"
    assert table.splitlines() == [
        *_sequence_report.heading(rows[0]).splitlines(),
        *map(_sequence_report.line, rows),
    ]
    assert drawing.read_text().startswith("<?xml")


def test_plot_without_matplotlib_is_refused_before_the_measuring(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(_plots, "find_spec", lambda name: None)
    assert main([*QUICK, "--plot", str(tmp_path / "plot.png")]) == 1
    assert "forward" not in capsys.readouterr().out


def test_the_loop_is_the_layer():
    loop, layer = CASE.module(LOOP), CASE.module("LLTM")
    layer.load_state_dict(loop.state_dict())
    torch.testing.assert_close(loop(CASE.input())[0], layer(CASE.input())[0])
