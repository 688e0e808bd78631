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
# relative one starts from here. A value with a blank needs quotes, as in a shell.
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
    file.write_text("MAX_JOBS=3\nLLTM_JIT_VERBOSE=1\nCXX=\n")
    assert (settings.count("MAX_JOBS"), settings.flag("LLTM_JIT_VERBOSE")) == (3, True)
    assert settings.text("CXX") == "c++"
    monkeypatch.setenv("MAX_JOBS", "5")
    assert settings.count("MAX_JOBS") == 5
    for name in ("MAX_JOBS", "LLTM_JIT_VERBOSE"):
        monkeypatch.setenv(name, "")
    assert (settings.count("MAX_JOBS"), settings.flag("LLTM_JIT_VERBOSE")) == (None, False)


@pytest.mark.parametrize(
    ("value", "meant"), [("1", True), ("2", True), ("yes", True), ("0", False), ("", False)]
)
def test_a_flag(monkeypatch, value, meant):
    monkeypatch.setenv("LLTM_JIT_QUIET", value)
    assert settings.flag("LLTM_JIT_QUIET") is meant
    monkeypatch.setenv("LLTM_JIT_QUIET", "perhaps")
    with pytest.raises(ToolchainError, match="LLTM_JIT_QUIET to be 1 or 0, but got 'perhaps'"):
        settings.flag("LLTM_JIT_QUIET")


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


def test_paths_in_the_file_do_not_depend_on_the_current_directory(file, monkeypatch):
    (file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(file.parent / "elsewhere")
    monkeypatch.setenv("HOME", "/home/somebody")
    file.write_text("TORCH_EXTENSIONS_DIR=~/builds\nCUDA_HOME=cuda\nCXX=~/bin/c++\n")
    assert settings.text("TORCH_EXTENSIONS_DIR") == "/home/somebody/builds"
    assert settings.text("CUDA_HOME") == str(file.parent / "cuda")
    assert settings.text("CXX") == "~/bin/c++"


@pytest.mark.parametrize(
    ("text", "given"),
    {
        "as a shell's": (
            "export MAX_JOBS=3 # few\n\n  # more\nCXX='ccache g++'\nCUDA_HOME= # none\n",
            {"MAX_JOBS": "3", "CXX": "ccache g++"},
        ),
        "quotes in a comment": ("CXX='ccache g++' # not 'g++'", {"CXX": "ccache g++"}),
        "the last wins": ("MAX_JOBS=3\r\nCXX=g++\r\nMAX_JOBS=\r\nCXX=clang\r\n", {"CXX": "clang"}),
        "a byte order mark": ("\ufeffMAX_JOBS=3\n", {"MAX_JOBS": "3"}),
        "another encoding": ("# \udce9\nCUDA_HOME=/caf\udce9\n", {"CUDA_HOME": "/caf\udce9"}),
    }.values(),
)
def test_lines(file, text, given):
    file.write_bytes(os.fsencode(text))
    assert settings.given() == given


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("MAX_JBOS=3", "MAX_JBOS is not a setting; MAX_JOBS.env.example lists all settings"),
        ("MAX_JOBS 3", "expected NAME=VALUE, but got 'MAX_JOBS'"),
        ("CXX=ccache g++", "expected NAME=VALUE, but got 'g++'"),
        ("CXX='c++", "No closing quotation"),
    ],
)
def test_a_wrong_word_is_told(file, line, told):
    file.write_text(f"# one\n{line}\n")
    with pytest.raises(ToolchainError) as raised:
        settings.count("MAX_JOBS")
    assert str(raised.value) == f"{file}: {told}"


if __name__ == "__main__":
    FILE.write_text(render())
