"""`python -m benchmarks`: its help, and what it refuses before it measures."""

import argparse
import re

import pytest

from benchmarks.__main__ import WHAT, main
from benchmarks.shared import plot


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
