"""Names of folders with every character that there is: taken as they are, or refused by name."""

from __future__ import annotations

import re
import shutil

import pytest
from ways import MODULE

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.loading import build

EVERYTHING = "tab\t blank back\\slash \\ 'one' \"two\" `three` #%&;()[]{}*?<>!~^=+,@- ü漢"


def test_a_folder_with_every_character(tmp_path, monkeypatch):
    """With a real compiler, whose dependency files have a way of their own for some of them."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    folder = tmp_path / EVERYTHING
    folder.mkdir()
    source, header = folder / "one two.cpp", folder / "value \t\\ #.h"
    source.write_text(f'#include "{header.name}"\n{MODULE}')
    for value in (1, 2):
        header.write_text(f"#define VALUE {value}\n")
        assert torch_api.load("odd", source, extra_include_paths=[folder]).value() == value


@pytest.mark.parametrize("mark", ["|", "\n", "\r"])
def test_what_a_build_file_cannot_hold_is_named(tmp_path, mark):
    folder = tmp_path / f"odd{mark}folder"
    folder.mkdir()
    (folder / "one.cpp").write_text(MODULE)
    message = f"cannot contain {folder}/one.cpp, because of the {mark!r} in it; move the sources"
    with pytest.raises(BuildError, match=re.escape(message)):
        torch_api.load("odd", folder / "one.cpp")


def test_a_copy_is_built_for_the_folder_that_it_is_in(bench, capsys):
    """And that is all that is said, not what lies elsewhere beside each."""
    copy = shutil.copytree(bench.sources / "one", bench.directory / "far" / "away" / "one")
    for folder in (bench.sources / "one", copy):
        torch_api.load("_C", folder, extra_include_paths=[bench.sources])
    told = capsys.readouterr().err
    assert f"): the last build was in another folder, {bench.sources}\n" in told


def test_paths_are_shown_where_nobody_knows_a_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.short_path(tmp_path / "a") == "~/a"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as in a container with a user of its own
    assert build.short_path(tmp_path / "a") == str(tmp_path / "a")
