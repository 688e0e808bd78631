"""MAX_JOBS.env: its example says what the table of environment variables says, and it is read.

`python tests/cli/test_settings_file.py` writes the file anew after the table was edited.
"""

import os
from pathlib import Path

import pytest

from lltm_jit.jit import knobs
from lltm_jit.jit.knobs import KNOBS

FILE = Path(__file__).parents[2] / "MAX_JOBS.env.example"

HEADER = """\
# Settings of the build. Copy this file to MAX_JOBS.env beside it, and uncomment what you set.
# A variable of the real environment wins over this file; an empty one asks for the default. The
# file is read in a checkout only, never from the current directory. A path may begin with ~, and a
# relative one starts from here.
"""


def render() -> str:
    entries = [f"# {knob.help}\n#{knob.name}={knob.default}\n" for knob in KNOBS.values()]
    return "\n".join([HEADER, *entries])


def test_the_example_lists_every_variable_with_its_default():
    assert FILE.read_text() == render(), f"write it anew: python {Path(__file__)}"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """The file to write settings to, in a checkout without any."""
    (tmp_path / FILE.name).write_text(FILE.read_text())
    monkeypatch.setattr(knobs, "_CHECKOUT", tmp_path)
    for name in KNOBS:
        monkeypatch.delenv(name, raising=False)
    knobs._settings_file.cache_clear()
    yield tmp_path / "MAX_JOBS.env"
    knobs._settings_file.cache_clear()


def test_the_environment_wins_over_the_file_even_when_empty(settings, monkeypatch):
    settings.write_text("MAX_JOBS=3\nLLTM_JIT_VERBOSE=1\nLLTM_JIT_KEEP=7\nCXX=\nHOME=/nowhere\n")
    assert knobs.count("MAX_JOBS") == 3
    assert knobs.flag("LLTM_JIT_VERBOSE")
    assert knobs.text("CXX") == "c++"
    monkeypatch.setenv("MAX_JOBS", "5")
    assert knobs.count("MAX_JOBS") == 5
    for name in ("MAX_JOBS", "LLTM_JIT_VERBOSE", "LLTM_JIT_KEEP"):
        monkeypatch.setenv(name, "")
    assert knobs.count("MAX_JOBS") is None
    assert not knobs.flag("LLTM_JIT_VERBOSE")
    assert knobs.count("LLTM_JIT_KEEP") == 5


@pytest.mark.parametrize("gone", ["MAX_JOBS.env", "MAX_JOBS.env.example"])
def test_the_file_is_read_beside_its_example_alone(settings, gone, monkeypatch):
    """Not from the current directory, nor beside an installed copy."""
    settings.write_text("MAX_JOBS=3\n")
    (settings.parent / gone).rename(settings.parent / "elsewhere")
    current = settings.parent / "current"
    current.mkdir()
    (current / "MAX_JOBS.env").write_text("MAX_JOBS=4\n")
    monkeypatch.chdir(current)
    assert knobs.count("MAX_JOBS") is None


@pytest.mark.parametrize("gone_to", ["", "elsewhere"])
def test_paths_in_the_file_do_not_depend_on_the_current_directory(settings, gone_to, monkeypatch):
    (settings.parent / "elsewhere").mkdir()
    monkeypatch.chdir(settings.parent / gone_to)
    monkeypatch.setenv("HOME", "/home/somebody")
    settings.write_text("TORCH_EXTENSIONS_DIR=~/builds\nCUDA_HOME=cuda\nCXX=~/bin/c++\n")
    assert knobs.text("TORCH_EXTENSIONS_DIR") == "/home/somebody/builds"
    assert knobs.text("CUDA_HOME") == str(settings.parent / "cuda")
    assert knobs.text("CXX") == "~/bin/c++"


def test_a_file_in_another_encoding(settings):
    settings.write_bytes(b"# caf\xe9\nTORCH_EXTENSIONS_DIR=/caf\xe9\nMAX_JOBS=3\n")
    assert knobs.count("MAX_JOBS") == 3
    assert os.fsencode(knobs.text("TORCH_EXTENSIONS_DIR")) == b"/caf\xe9"


if __name__ == "__main__":
    FILE.write_text(render())
