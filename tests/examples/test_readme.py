"""The README's code runs as it stands, and its pictures are those of the measurements."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(python|cpp)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def figures(monkeypatch):
    """The script that draws them, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "plots"))
    import make_figures

    return make_figures


def run(code, directory):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cases():
    """The blocks, by their numbers; those that compile more than the package's kernels are slow."""
    for number, code in enumerate(code for kind, code in BLOCKS if kind == "python"):
        compiles = re.search(r"\.(load|recurrent_cell|compile)\(", code)
        yield pytest.param(code, id=str(number), marks=[pytest.mark.slow] if compiles else [])


@pytest.mark.parametrize("code", list(cases()))
def test_python_runs(code, tmp_path):
    for name, source in re.findall(r"Save this as `(.*?)`.*?```cpp\n(.*?)```", README, re.DOTALL):
        (tmp_path / name).write_text(source)
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert run(code, tmp_path).splitlines() == expected


def test_the_pictures_show_the_measurements(figures):
    for name, figure in figures.load().items():
        with Image.open(figures.HERE / f"{name}.png") as picture:
            assert picture.info["Description"] == figures.digest(figure), f"{name}.png is stale"
    assert figures.with_captions(README, figures.load()) == README


def test_a_picture_is_drawn(figures, tmp_path):
    figure = next(iter(figures.load().values()))
    figures.draw(figure, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.width > 1000
        assert picture.info["Description"] == figures.digest(figure)
