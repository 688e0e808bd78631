"""MAX_JOBS.env: its example says what the table of environment variables says, and it is read.

`python tests/jit/user/test_settings_file.py` writes the file anew after the table was edited.
"""

import os
from pathlib import Path

import pytest

from lltm_jit.jit import ToolchainError
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.settings import SETTINGS

FILE = Path(__file__).parents[3] / "MAX_JOBS.env.example"

HEADER = """\
# Settings of the build. Copy this file to MAX_JOBS.env beside it, and uncomment what you set.
# A variable of the real environment wins over this file; an empty one asks for the default. The
# file is read in a checkout only, never from the current directory. A path may begin with ~, and a
# relative one starts from here.
"""


def render() -> str:
    entries = [
        f"# {setting.help}\n#{setting.name}={setting.default}\n" for setting in SETTINGS.values()
    ]
    return "\n".join([HEADER, *entries])


def test_the_example_lists_every_variable_with_its_default():
    assert FILE.read_text() == render(), f"write it anew: python {Path(__file__)}"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file to write settings to, in a checkout without any."""
    (tmp_path / FILE.name).write_text(FILE.read_text())
    monkeypatch.setattr(settings, "_CHECKOUT", tmp_path)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    settings._settings_file.cache_clear()
    yield tmp_path / "MAX_JOBS.env"
    settings._settings_file.cache_clear()


def test_the_environment_wins_over_the_file_even_when_empty(file, monkeypatch):
    file.write_text("MAX_JOBS=3\nLLTM_JIT_VERBOSE=1\nLLTM_JIT_CACHE_GB=7\nCXX=\n")
    assert settings.count("MAX_JOBS") == 3
    assert settings.flag("LLTM_JIT_VERBOSE")
    assert settings.text("CXX") == "c++"
    monkeypatch.setenv("MAX_JOBS", "5")
    assert settings.count("MAX_JOBS") == 5
    for name in ("MAX_JOBS", "LLTM_JIT_VERBOSE", "LLTM_JIT_CACHE_GB"):
        monkeypatch.setenv(name, "")
    assert settings.count("MAX_JOBS") is None
    assert not settings.flag("LLTM_JIT_VERBOSE")
    assert settings.count("LLTM_JIT_CACHE_GB") == 20


@pytest.mark.parametrize("gone", ["MAX_JOBS.env", "MAX_JOBS.env.example"])
def test_the_file_is_read_beside_its_example_alone(file, gone, monkeypatch):
    """Not from the current directory, nor beside an installed copy."""
    file.write_text("MAX_JOBS=3\n")
    (file.parent / gone).rename(file.parent / "elsewhere")
    current = file.parent / "current"
    current.mkdir()
    (current / "MAX_JOBS.env").write_text("MAX_JOBS=4\n")
    monkeypatch.chdir(current)
    assert settings.count("MAX_JOBS") is None


@pytest.mark.parametrize("gone_to", ["", "elsewhere"])
def test_paths_in_the_file_do_not_depend_on_the_current_directory(file, gone_to, monkeypatch):
    (file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(file.parent / gone_to)
    monkeypatch.setenv("HOME", "/home/somebody")
    file.write_text("TORCH_EXTENSIONS_DIR=~/builds\nCUDA_HOME=cuda\nCXX=~/bin/c++\n")
    assert settings.text("TORCH_EXTENSIONS_DIR") == "/home/somebody/builds"
    assert settings.text("CUDA_HOME") == str(file.parent / "cuda")
    assert settings.text("CXX") == "~/bin/c++"


def test_lines_are_those_of_a_shell(file):
    file.write_text("export MAX_JOBS = 3 # few\n\n  # more\nCXX='ccache g++'\nCUDA_HOME= # none\n")
    assert settings.count("MAX_JOBS") == 3
    assert settings.text("CXX") == "ccache g++"
    assert settings.text("CUDA_HOME") == ""


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_comment_after_a_quoted_value_may_have_quotes(file, quote):
    file.write_text(f"CXX={quote}ccache g++{quote} # not {quote}g++{quote}")
    assert settings.text("CXX") == "ccache g++"


def test_the_last_of_several_lines_wins_even_when_empty(file):
    file.write_text("MAX_JOBS=3\r\nCXX=g++\r\nMAX_JOBS=\r\nCXX=clang++\r\n")
    assert settings.given() == {"CXX": "clang++"}


def test_a_file_may_begin_with_a_byte_order_mark(file):
    file.write_text("MAX_JOBS=3\n", "utf-8-sig")
    assert settings.count("MAX_JOBS") == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("MAX_JBOS=3", "MAX_JBOS is not a setting; did you mean MAX_JOBS?"),
        ("MAX_JOBS 3", "expected NAME=VALUE, but got 'MAX_JOBS 3'"),
        ("CXX='c++", 'expected NAME=VALUE, but got "CXX=\'c++"'),
    ],
)
def test_a_wrong_line_is_told_with_its_place(file, line, told):
    file.write_text(f"# one\n{line}\n")
    with pytest.raises(ToolchainError) as raised:
        settings.count("MAX_JOBS")
    assert str(raised.value) == f"{file}:2: {told}"


def test_a_file_in_another_encoding(file):
    file.write_bytes(b"# caf\xe9\nTORCH_EXTENSIONS_DIR=/caf\xe9\nMAX_JOBS=3\n")
    assert settings.count("MAX_JOBS") == 3
    assert os.fsencode(settings.text("TORCH_EXTENSIONS_DIR")) == b"/caf\xe9"


if __name__ == "__main__":
    FILE.write_text(render())
