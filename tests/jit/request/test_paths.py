"""Names of folders with every character that there is: taken as they are, or refused by name."""

import shutil
from ctypes import CDLL

import pytest
from small_files import MODULE, write

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.loading import build

EVERYTHING = "tab\t blank back\\slash \\ 'one' \"two\" `three` #%&;()[]{}*?<>!~^=+,@-: ü漢"


pytestmark = pytest.mark.usefixtures("root")


def test_a_folder_with_every_character(tmp_path):
    """With a real compiler, whose dependency files have a way of their own for some of them."""
    folder = tmp_path / EVERYTHING
    header = folder / "value \t\\ #.h"
    source = write(folder / "one two.cpp", f'#include "{header.name}"\n{MODULE}')
    for value in (1, 2):
        header.write_text(f"#define VALUE {value}\n")
        assert torch_api.load("odd", source, extra_include_paths=[folder]).value() == value


def test_odd_names_compile(real):
    names = ("a b", "a$b", "a:b", "a'b", 'a"b', "é", "a\\b", "a#b", "-x")
    sources = [
        real.write(f"{name}.cpp", f'extern "C" int f{n}() {{ return {n}; }}\n')
        for n, name in enumerate(names)
    ]
    library = torch_api.load("odd", sources, is_python_module=False)
    assert [getattr(CDLL(library), f"f{n}")() for n in range(len(names))] == [*range(len(names))]
    for number, source in enumerate(sources):  # and what each was made from is known
        source.write_text(f'extern "C" int f{number}() {{ return {10 + number}; }}\n')
    library = torch_api.load("odd", sources, is_python_module=False)
    assert CDLL(library).f8() == 18


def test_a_source_whose_path_is_not_utf_8(tmp_path):
    """It is compiled; torch, which writes flags into a file, takes none like it."""
    source = write(tmp_path / "gr\udcf6$.cpp", MODULE)
    assert torch_api.load("odd", source).value() == 1
    with pytest.raises(BuildError, match=r"the flag '-DGR\\udcf6', which is not UTF-8"):
        torch_api.load("odd", source, extra_cflags=["-DGR\udcf6"])


@pytest.mark.parametrize("mark", ["$", "|", "\n", "\r"])
def test_what_a_build_file_cannot_hold_is_named(tmp_path, mark):
    folder = tmp_path / f"odd{mark}folder"
    source = write(folder / "one.cpp", MODULE)
    with pytest.raises(BuildError) as told:
        torch_api.load("odd", source, extra_include_paths=[folder])
    assert f"because of the {mark!r} in it; move the sources" in str(told.value)
    assert f"cannot contain {folder}" in str(told.value)


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
