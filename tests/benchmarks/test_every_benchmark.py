"""Every benchmark, at small sizes: tables, file, wrong results, options, and what is refused."""

import argparse
import json
import re
from dataclasses import dataclass

import pytest
import torch

from benchmarks import cell, elementwise
from benchmarks.__main__ import WHAT, main
from benchmarks.sequence import cases, others, padding, published
from benchmarks.shared import plot
from benchmarks.stylegan import OPERATORS as OF_IMAGES
from benchmarks.stylegan.cases import Case as Images
from benchmarks.stylegan.cases import cases as images
from lltm_jit import functional
from lltm_jit.ops._elementwise import OPERATORS

BOTH = cases.PHASES
QUICK = ["--seconds", "0.001"]
LAYERS = ["sequence", "-b", "2", "-s", "8", "--steps", "3"]
IMAGES = ["stylegan", "--shape", "1", "2", "8", "8", "--dtype", "float"]
CELL = ["cell", "-b", "2", "-f", "3", "-s", "4"]
TIMED_IMAGES = ["kernels", "plain PyTorch", "copy"]


@dataclass(frozen=True)
class Run:
    """What is measured: titles of tables, and the rows of each as (phase, name)."""

    words: list[str]
    titles: list[str]
    rows: list[tuple[str, str]]
    checked: bool = True  # results are compared


def each(phases, names):
    return [(phase, name) for phase in phases for name in names]


def of_images(operator):
    found = images(operator, torch.float, (1, 2, 8, 8), torch.device("cpu"))
    return [(case.phase, name) for case in found for name in TIMED_IMAGES]


RUNS = {
    **{
        f"cell {dtype}": Run(
            [*CELL, "--dtype", dtype],
            [f"{title}, cpu"],
            [
                (phase, name)
                for number, phase in enumerate(cell.PHASES)
                for name in ("reference", "aten", "fused", "addmm alone")[: 3 + (number == 0)]
            ],
        )
        for dtype, title in (("float", "float32"), ("half", "float16"), ("bfloat16", "bfloat16"))
    },
    "elementwise": Run(
        ["elementwise", "--size", "9"],
        ["float32, 9 elements, cpu"],
        len(OPERATORS) * each((elementwise.FORWARD, elementwise.BACKWARD), TIMED_IMAGES),
        checked=False,
    ),
    "sequence": Run(
        LAYERS,
        [f"{dtype}, cpu, 3 steps, times of one step" for dtype in ("float32", "bfloat16")],
        2 * each(BOTH, [*cases.OURS, *cases.THEIRS, cases.LOOP]),
    ),
    "one layer": Run(
        [*LAYERS, "--layer", "GRU", "--dtype", "double"],
        ["float64, cpu, 3 steps, times of one step"],
        each(BOTH, ["GRU", "nn.GRU"]),
    ),
    "published": Run(
        ["sequence", "--published", "--dtype", "float"],
        ["float32, cpu, times of one step"],
        [*each(BOTH, ["LSTM", "nn.LSTM"]), *each(BOTH, ["GRU", "nn.GRU"])],
    ),
    "heads": Run(
        ["sequence", "--heads", "-b", "2", "--steps", "2"],
        ["bfloat16, cpu, B 2, T 2, gates given, times of a call"],
        [
            *each(BOTH, ["lstm", "slstm"]),
            *(5 * each(BOTH, ["lstm", "slstm", "one head", "in turn"])),
        ],
        checked=False,
    ),
    "padding": Run(
        ["sequence", "--padding", "--dtype", "float"],
        ["float32, cpu, B 20, T 35, times of one step"],
        [*each(BOTH, ["H 16", "H 3", "H 15"]), *each(BOTH, ["H 32", "H 17"])],
        checked=False,
    ),
    "others": Run(
        ["sequence", "--others", "-b", "2", "--dtype", "float"],
        ["float32, cpu, 3 steps, times of one step"],
        [*each(BOTH, ["minGRU", "a copy"]), *each(BOTH, ["LayerNormLSTM", "TorchScript", "LSTM"])],
        checked=False,
    ),
    **{
        operator: Run(
            [*IMAGES, "--only", operator],
            [f"{operator}: float32, [1, 2, 8, 8], cpu", f"{operator}: float32, norm of the "],
            of_images(operator),
        )
        for operator in OF_IMAGES
    },
}


@pytest.fixture
def small(monkeypatch, quick_clock):
    """Published sizes and those of padding and other cells, made small."""
    few = [("LSTM", 2, 2, 3, 8, 4, 5), ("GRU", 1, 1, 8, 8, 2, 3)]
    monkeypatch.setattr(published, "_SIZES", {"cpu": few})
    monkeypatch.setattr(padding, "HIDDEN", [3, 15, 16, 17])
    monkeypatch.setattr(others, "_STEPS", {"minGRU": 4, "LayerNormLSTM": 3})
    monkeypatch.setattr(others, "_UNITS", {"minGRU": [6], "LayerNormLSTM": [5]})


@pytest.mark.parametrize("run", RUNS)
def test_tables_and_file(run, capsys, tmp_path, small):
    of, file = RUNS[run], tmp_path / "figures.json"
    assert main([*of.words, *QUICK, "--json", str(file)]) == 0
    header, *tables = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    for title in of.titles:
        assert any(table.startswith(title) for table in tables)
    rows = json.loads(file.read_text())["rows"]
    timed = [row for row in rows if row["times"]]
    assert [(row["phase"], row["name"]) for row in timed] == of.rows
    assert all(row["times"]["as called"]["median"] > 0 for row in timed)
    checks = {row["check"] for row in rows}
    assert "match" in checks if of.checked else checks <= {"", "-"}
    assert not any("error" in check for check in checks)


WRONG_IMAGES = ("cuda", "tanh, NCHW")
# What is measured, the function that gives a wrong result, how it does, and what is told of it.
WRONG = {
    "cell": (
        CELL,
        (functional, "lltm_cell"),
        lambda found, *_, impl: (found[0] * (1.01 if impl == "aten" else 1), found[1]),
        3 * [", aten: error 1."],
    ),
    "sequence": (
        [*LAYERS, "--dtype", "float"],
        (cases.OURS["LSTM"], "forward"),
        lambda found, *_: (found[0] * 1.01, found[1]),
        2 * [", LSTM: error 1."],
    ),
    "stylegan": (
        [*IMAGES, "--only", "bias_act"],
        (Images, "run"),
        lambda found, case, _, impl: found * (1.01 if (impl, case.name) == WRONG_IMAGES else 1),
        ["tanh, NCHW, kernels: error: "],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_named_and_fails(name, capsys, monkeypatch, quick_clock):
    words, (owner, function), spoiled, named = WRONG[name]
    right = getattr(owner, function)

    def wrong(*given, **how):
        return spoiled(right(*given, **how), *given, **how)

    monkeypatch.setattr(owner, function, wrong)
    assert main([*words, *QUICK]) == 1
    title, *lines = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert title == "wrong:"
    assert len(lines) == len(named)
    assert all(part in line for part, line in zip(named, lines, strict=True))


REFUSED = {
    "published": (["sequence", "--published", "-b", "3"], "leave out -b, -s and --steps"),
    "published layer": (
        ["sequence", "--published", "--layer", "LLTM"],
        "none of these sizes is of a layer LLTM",
    ),
    "heads": (["sequence", "--heads", "-s", "3"], "leave out -s and --layer"),
    "padding": (["sequence", "--padding", "--layer", "LSTM"], "leave out -s and --layer"),
    "others": (["sequence", "--others", "--steps", "3"], "--steps"),
    "cell": (["cell", "--against", "/nowhere"], "expected --against to be a directory, but got "),
    "jit": (["jit", "--against", "/nowhere"], "expected --against to be a directory with an "),
    "no GPU": (["stylegan", "-c"], "error: expected a CUDA device, but "),
    "kernel": (["kernel"], "the benchmark of a kernel needs a GPU"),
    "no file": (["cell", "--from", "/nowhere.json"], "nowhere.json: No such file or directory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused(name, capsys, monkeypatch):
    """And nothing is built for it."""
    words, message = REFUSED[name]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("lltm_jit.native.load", lambda family: pytest.fail(f"built {family}"))
    assert main([*words, *QUICK] if words[0] not in ("jit", "kernel") else words) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", cases.MODULES)
def test_every_phase_of_a_layer_does_what_it_says(name):
    case = cases.Case(2, 8, 3, torch.float, torch.device("cpu"))
    forward = case.step(name, cases.FORWARD)()
    assert forward[0].shape == (3, 2, 8)
    assert not forward[0].requires_grad
    gradients = case.step(name, cases.BACKWARD)()
    shapes = [parameter.shape for parameter in case.module(name).parameters()]
    assert [gradient.shape for gradient in gradients] == [(3, 2, 8), *shapes]
    assert all(gradient.any() for gradient in gradients)


def said_at_exit(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    return stop.value.code, *capsys.readouterr()


def test_help_has_every_benchmark(capsys):
    code, out, _ = said_at_exit(capsys, "-h")
    assert code == 0
    for name, (_, summary) in WHAT.items():
        assert re.search(rf"\n  {name} +{re.escape(summary)}\n", out)
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", WHAT)
def test_help_explains_every_option(name, capsys):
    code, out, _ = said_at_exit(capsys, name, "-h")
    assert code == 0
    assert out.startswith(f"usage: python -m benchmarks {name} [-h]")
    assert f"\n\n{name}: {WHAT[name][1]}\n" in out
    parser = argparse.ArgumentParser()
    WHAT[name][0].add_options(parser)
    assert all(action.help for action in parser._actions)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--plot", "x.gif"], "expected a name that ends in one of .png, .svg, .pdf, "),
        (["--seconds", "-1"], "expected seconds above 0, but got '-1'"),
        (["--layer", "GRU"], "unrecognized arguments: --layer GRU"),
        (["jit", "--seconds", "1"], "unrecognized arguments: --seconds 1"),
        (["sequenec"], "invalid choice: 'sequenec'"),
        (["--json", "none/file"], "argument --json: there is no directory none"),
        (["--plot", "none/file.png"], "argument --plot: there is no directory none"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_measuring(capsys, words, error):
    code, out, err = said_at_exit(capsys, *words)
    assert (code, out) == (2, "")
    assert error in err


def test_a_plot_without_matplotlib_is_refused_before_the_measuring(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    _, out, err = said_at_exit(capsys, "--plot", str(tmp_path / "plot.png"))
    assert "--plot: needs matplotlib: `python -m pip install matplotlib`" in err
    assert out == ""
