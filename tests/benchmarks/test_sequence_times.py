"""`python -m benchmarks sequence`, at small sizes."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.sequence import (
    check,
    compile_kernels,
    heads,
    others,
    padding,
    published,
    resets,
    to_tf32,
)
from benchmarks.sequence.cases import (
    BACKWARD,
    FORWARD,
    LOOP,
    MODULES,
    OURS,
    PHASES,
    THEIRS,
    Case,
    operations,
)
from benchmarks.sequence.floor import gpu_floor
from benchmarks.sequence.goals import goals
from lltm_jit.ops.rnn.recurrent_layer.warm import Warmed

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CASE = Case(2, 8, 3, torch.float, CPU)
QUICK = ["sequence", "-b", "2", "-s", "8", "--steps", "3", "--seconds", "0.001"]


def saved(file):
    return json.loads(file.read_text())["rows"]


def test_tables_and_file(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--json", str(file)]) == 0
    header, *tables, goals = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    assert goals == "no goal is missed\n"  # there is none at this size
    names = [*OURS, *THEIRS, LOOP]
    for dtype, table in zip(("float32", "bfloat16"), tables, strict=True):
        title, columns, *rows = table.splitlines()
        assert title == f"{dtype}, cpu, 3 steps, times of one step"
        words = "case phase check as called IQR floor share GFLOP/s error beside others"
        assert columns.split() == words.split()
        assert [row[54:67].strip() for row in rows if row[:1] not in "~>"] == 2 * names
    rows = saved(file)
    assert [(row["phase"], row["name"]) for row in rows] == 2 * [
        (phase, name) for phase in PHASES for name in names
    ]
    # In turns; milliseconds over three steps.
    medians = [row["times"]["as called"]["median"] for row in rows[: len(names)]]
    assert medians == [i * 1e-3 / 3 for i in range(1, len(names) + 1)]
    checked = {"LLTM", *(name for name in OURS if f"nn.{name}" in THEIRS)}
    for row in rows:
        assert row["check"] == ("match" if row["name"] in checked else "-")
    assert rows[0]["figures"]["GFLOP/s"] == operations(CASE, "LLTM", FORWARD) / (1e6 / 3)


def test_one_layer(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--layer", "GRU", "--dtype", "double", "--json", str(file)]) == 0
    assert [row["name"] for row in saved(file)] == 2 * ["GRU", "nn.GRU"]
    assert " 0.50 of nn.GRU\n" in capsys.readouterr().out


def test_a_wrong_result_is_marked_and_fails(capsys, tmp_path, monkeypatch, quick_clock):
    right = OURS["LSTM"].forward

    def wrong(layer, x):
        output, state = right(layer, x)
        return output * 1.01, state

    monkeypatch.setattr(OURS["LSTM"], "forward", wrong)
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--dtype", "float", "--json", str(file)]) == 1
    wrong = [row["name"] for row in saved(file) if row["check"].startswith("error 1.")]
    assert wrong == ["LSTM", "LSTM"]
    assert "\nwrong:\n" in capsys.readouterr().out


@pytest.mark.parametrize("hidden_size", [1, 8, 58])
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_tf32_may_round_factors_and_no_more(monkeypatch, layer, hidden_size):
    """Beside torch's layer, which does not round here."""
    right, off = OURS[layer].forward, 1.0

    def rounded(layer, x):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(to_tf32(parameter))
        output, state = right(layer, to_tf32(x))
        return output * off, state

    monkeypatch.setattr(OURS[layer], "forward", rounded)
    case = Case(4, hidden_size, 9, torch.float, CPU, layer=layer)
    assert check(case, layer, FORWARD)[0].startswith("error")
    case = replace(case, precision="tf32")
    assert check(case, layer, FORWARD)[0] == "match"
    off = 1.01
    assert check(case, layer, FORWARD)[0].startswith("error")


@pytest.mark.parametrize("name", MODULES)
def test_every_phase_does_what_it_says(name):
    forward = CASE.step(name, FORWARD)()
    assert forward[0].shape == (3, 2, 8)
    assert not forward[0].requires_grad
    gradients = CASE.step(name, BACKWARD)()
    shapes = [parameter.shape for parameter in CASE.module(name).parameters()]
    assert [gradient.shape for gradient in gradients] == [(3, 2, 8), *shapes]
    assert all(gradient.any() for gradient in gradients)


def test_kernels_are_compiled_once_for_calls_that_share_them(monkeypatch):
    asked = []

    def warm(layer, rows, training):
        precision = torch.backends.cudnn.rnn.fp32_precision
        asked.append((type(layer).__name__, rows, layer.hidden_size, training, precision))

    monkeypatch.setattr(Warmed, "warm", warm)
    on_gpu = replace(CASE, device=GPU)
    others = [replace(on_gpu, precision="tf32"), replace(on_gpu, steps=9)]
    compile_kernels([(case, ["LSTM"]) for case in (*others, on_gpu)])
    assert sorted(asked) == [
        ("LSTM", 2, 8, training, precision)
        for training in (False, True)
        for precision in ("ieee", "tf32")
    ]


SMALL = [("LSTM", 2, 2, 3, 8, 4, 5), ("GRU", 1, 1, 8, 8, 2, 3)]


@pytest.mark.parametrize("goal", [0.55, 0.45])
def test_published_sizes(capsys, tmp_path, monkeypatch, quick_clock, goal):
    monkeypatch.setattr(published, "_SIZES", {"cpu": SMALL})
    monkeypatch.setattr(published, "_CPU_GOAL", goal)
    file = tmp_path / "figures.json"
    arguments = ["sequence", "--published", "--dtype", "float", "--seconds", "0.001"]
    assert main([*arguments, "--json", str(file)]) == 0
    rows = saved(file)
    titles = ["LSTM 2 x 8 bi of 3, B4 T5", "GRU 1 x 8, B2 T3"]
    assert [(row["case"], row["phase"], row["name"]) for row in rows] == [
        (title, phase, name)
        for title in titles
        for phase in PHASES
        for name in (title[:4].strip(), f"nn.{title[:4].strip()}")
    ]
    assert all(0 < row["figures"]["error"] < 1e-5 for row in rows)
    end = capsys.readouterr().out.split("\n\n")[-1]  # ours takes half as long by this clock
    assert end.count("0.50 of nn.") == (4 if goal < 0.5 else 0)


def test_published_sizes_are_those_of_one_layer(capsys, monkeypatch, quick_clock):
    monkeypatch.setattr(published, "_SIZES", {"cpu": SMALL})
    quick = ["--layer", "GRU", "--dtype", "float", "--seconds", "0.001"]
    assert main(["sequence", "--published", *quick]) == 0
    assert "LSTM" not in capsys.readouterr().out
    assert main(["sequence", "--published", "--layer", "LLTM"]) == 1
    assert "none of these sizes is of a layer LLTM" in capsys.readouterr().err
    for size in ("-b", "-s", "--steps"):
        assert main(["sequence", "--published", size, "3"]) == 1
        assert "leave out -b, -s and --steps" in capsys.readouterr().err


def test_goals_of_published_sizes():
    types = [(torch.half, "ieee"), (torch.float, "ieee"), (torch.float, "tf32")]
    cases = list(published.published_cases(GPU, types))
    assert len(cases) == 3 * 24
    assert {(case.directions, case.hidden_size, case.batch_size, case.steps) for case in cases} > {
        *published._GOALS
    }
    of_first = [case for case in cases if case.title == "LSTM 2 x 650, B20 T35"]
    found = [goals(case, "LSTM", phase) for case in of_first for phase in PHASES]
    assert [goal["nn.LSTM"] for goal in found] == [0.5, 0.55, 0.7, 0.7, 0.65, 0.7]
    tagger = next(case for case in cases if case.title == "LSTM 2 x 200 bi of 300, B32 T64")
    assert goals(tagger, "LSTM", FORWARD) == {"nn.LSTM": 0.15}
    speech = next(case for case in cases if case.title == "GRU 3 x 800 bi, B32 T300")
    assert goals(speech, "GRU", BACKWARD) == {"nn.GRU": 0.5}
    alone = next(case for case in cases if case.title == "GRU 1 x 512, B16 T64")
    assert goals(alone, "GRU", FORWARD) == {"nn.GRU": 1.0}
    on_cpu = replace(tagger, device=CPU)
    assert on_cpu.module("LSTM").weight_ih_l0.shape == (800, 300)
    # Two directions; the second layer takes the outputs of both.
    assert operations(tagger, "LSTM", FORWARD) == 2 * 32 * 2 * 800 * (300 + 200 + 400 + 200)


def test_drawn_sizes():
    types = [(torch.half, "ieee"), (torch.float, "tf32")]
    cases = list(published.drawn_cases(GPU, types, 200, seed=3))
    assert cases == list(published.drawn_cases(GPU, types, 200, seed=3))
    assert cases != list(published.drawn_cases(GPU, types, 200, seed=4))
    for name, most, least in (
        ("batch_size", 512, 9),
        ("hidden_size", 2112, 9),
        ("steps", 256, 5),
        ("layers", 4, 1),
        ("directions", 2, 1),
    ):
        found = [getattr(case, name) for case in cases]
        assert 1 <= min(found) <= least
        assert 0.9 * most <= max(found) <= most
    assert {case.layer for case in cases} == {"LSTM", "GRU"}
    assert {case.precision for case in cases} == {"ieee", "tf32"}
    assert all(goals(case, case.layer, FORWARD) == {f"nn.{case.layer}": 1.05} for case in cases)


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


def test_goals():
    on_gpu = Case(16, 128, 256, torch.half, GPU)
    assert goals(on_gpu, "LLTM", FORWARD) == {"nn.LSTM": 0.21, LOOP: None}
    assert goals(on_gpu, "LSTM", FORWARD) == {"nn.LSTM": None, "LLTM": 1.4}
    assert goals(replace(on_gpu, dtype=torch.bfloat16), "LLTM", BACKWARD)["nn.LSTM"] == 0.11
    assert goals(replace(on_gpu, hidden_size=100), "LLTM", FORWARD)["nn.LSTM"] is None
    on_cpu = Case(16, 512, 256, torch.float, CPU)
    found = [goals(on_cpu, layer, FORWARD) for layer in ("LLTM", "LSTM", "GRU")]
    assert [next(iter(of_layer.values())) for of_layer in found] == [0.75, 0.9, None]
    assert found[1]["LLTM"] is None


def test_the_loop_is_the_layer():
    loop, layer = CASE.module(LOOP), CASE.module("LLTM")
    layer.load_state_dict(loop.state_dict())
    torch.testing.assert_close(loop(CASE.input())[0], layer(CASE.input())[0])


def test_heads_beside_one_alone(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    quick = ["--heads", "-b", "2", "--steps", "2", "--seconds", "0.001", "--json", str(file)]
    assert main(["sequence", *quick]) == 0
    rows = saved(file)
    names = ["lstm", "slstm", "one head", "in turn"]
    assert [(row["case"], row["phase"], row["name"]) for row in rows] == [
        (f"{count} x {768 // count}", phase, name)
        for count in (1, 3, 6, 12, 24, 48)
        for phase in PHASES
        for name in (names if count > 1 else names[:2])
    ]
    assert rows[-4]["beside"] == {"one head": None, "in turn": None}
    printed = capsys.readouterr().out
    assert "bfloat16, cpu, B 2, T 2, gates given, times of a call" in printed
    assert printed.count("2.00 of lstm") == 12  # by this clock
    assert "no goal is missed" in printed


def test_goals_of_heads():
    """They are of a GPU, where all heads run at once."""
    assert heads.goals(48, on_gpu=True)["lstm"] == {"one head": 1.75, "in turn": None}
    assert heads.goals(48, on_gpu=True)["slstm"] == {"lstm": 1.35}
    assert heads.goals(48, on_gpu=False)["slstm"] == {"lstm": None}


@pytest.mark.parametrize("phase", PHASES)
def test_heads_do_what_they_say(phase):
    results = heads._call("slstm", phase, 3, 2, 4, 8, torch.float, CPU)()
    shapes = [(3, 2, 32), (2, 32), (3, 2, 32)] if phase == FORWARD else [(3, 2, 128), (4, 32, 8)]
    assert [result.shape for result in results] == shapes
    assert all(result.any() for result in results)


def test_padding_beside_the_next_multiple(capsys, tmp_path, monkeypatch, quick_clock):
    monkeypatch.setattr(padding, "HIDDEN", [3, 15, 16, 17])
    file = tmp_path / "figures.json"
    quick = ["--padding", "--dtype", "float", "--seconds", "0.001", "--json", str(file)]
    assert main(["sequence", *quick]) == 0
    rows = saved(file)
    assert [(row["case"], row["phase"], row["name"]) for row in rows] == [
        (f"H {multiple}", phase, f"H {size}")
        for multiple, sizes in ((16, (16, 3, 15)), (32, (32, 17)))
        for phase in PHASES
        for size in sizes
    ]
    assert [row["beside"] for row in rows[:3]] == [{}, {"H 16": 1.03}, {"H 16": 1.03}]
    assert "float32, cpu, B 20, T 35, times of one step" in capsys.readouterr().out


def test_cells_of_other_kinds(capsys, tmp_path, monkeypatch, quick_clock):
    """Each beside what does the same: the script's gradients are those of the layer."""
    monkeypatch.setattr(others, "_STEPS", {"minGRU": 4, "LayerNormLSTM": 3})
    monkeypatch.setattr(others, "_UNITS", {"minGRU": [6], "LayerNormLSTM": [5]})
    file = tmp_path / "figures.json"
    quick = ["--others", "-b", "2", "--dtype", "float", "--seconds", "0.001", "--json", str(file)]
    assert main(["sequence", *quick]) == 0
    assert [(row["phase"], row["name"]) for row in saved(file)] == [
        (phase, name)
        for names in (("minGRU", "a copy"), ("LayerNormLSTM", "TorchScript", "LSTM"))
        for phase in PHASES
        for name in names
    ]
    assert "float32, cpu, 3 steps, times of one step" in capsys.readouterr().out
    assert main(["sequence", *quick, "--steps", "3"]) == 1
    for phase in PHASES:
        steps = others._norms(2, 5, torch.double, CPU, phase)
        torch.testing.assert_close(steps["LayerNormLSTM"](), steps["TorchScript"]())


@pytest.mark.parametrize("ours", ["--heads", "--padding"])
def test_ours_among_themselves_have_layers_of_their_own(ours, capsys):
    for option in (["-s", "3"], ["--layer", "LSTM"]):
        assert main(["sequence", ours, *option]) == 1
        assert "leave out -s and --layer" in capsys.readouterr().err


def test_resets(tmp_path, quick_clock):
    """Our LSTM in one call, and torch's in all the ways that it can take resets."""
    file = tmp_path / "figures.json"
    assert main([*QUICK, "--resets", "--steps", "40", "--json", str(file)]) == 0
    found = saved(file)
    for begin in (0, 3):
        ours, to_states, theirs = found[begin : begin + 3]
        assert (ours["name"], to_states["name"]) == (resets.OURS, resets.TO_STATES)
        assert ours["check"] == to_states["check"] == "match"
        assert theirs["name"] in resets.OF_TORCH
    case = resets.cases(torch.double, "ieee", CPU, (40, 3, 8))[0]
    marks, x = resets.marks_of(case), case.input()
    ways = {**resets.OF_OURS, **resets.OF_TORCH}
    outputs = [way(case, marks)(x)[0] for way in ways.values()]
    assert marks.any()
    assert len(outputs) == 5
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])
