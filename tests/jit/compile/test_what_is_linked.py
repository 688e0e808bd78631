"""What a linker reads: a change of such a file gives another build."""

from __future__ import annotations

import shutil

import pytest
from engine_bench import tiers
from real_files import LINKED, archive, compiled, value

from lltm_jit import BuildError
from lltm_jit.jit import torch_api

LINKS = {
    "an object": ("far/other.o", "{}/far/other.o"),
    "a static library": ("far/libother.a", "{}/far/libother.a"),
    "-L and -l": ("far/libother.a", "-L{}/far -lother"),
    "-l with the file's name": ("far/libother.a", "-L{}/far -l:libother.a"),
    "-Wl": ("far/libother.a", "-Wl,-L{}/far,-lother"),
    "-Wl,--library-path": ("far/libother.a", "-Wl,--library-path,{}/far -lother"),
    "-Wl,--library-path=": ("far/libother.a", "-Wl,--library-path={}/far,--library=other"),
    "a file of the linker's flags": ("far/libother.a", "-Wl,@{}/words"),
    "LIBRARY_PATH": ("far/libother.a", "-lother"),
    "a linker script": ("far/libreal.a", "{}/script"),
}
OLD = {f"{name}, by an old linker": link for name, link in LINKS.items() if "script" not in name}
QUICK = ("-L and -l", "a linker script", "LIBRARY_PATH", "LIBRARY_PATH, by an old linker")


@pytest.mark.parametrize("name", tiers({name: name for name in (*LINKS, *OLD)}, QUICK))
def test_a_changed_file_that_is_linked(real, monkeypatch, name):
    """An old linker does not tell what it reads, so that the flags have to."""
    file, given = {**LINKS, **OLD}[name]
    if name in OLD:
        monkeypatch.setattr("lltm_jit.jit.compile.ninja.TELL_LINK", "")
    if name.startswith("LIBRARY_PATH"):
        monkeypatch.setenv("LIBRARY_PATH", str(real.sources / "far"))
    real.write("source.cpp", LINKED)
    real.write("script", f"INPUT({real.sources}/far/libreal.a)\n")
    real.write("words", f"-L{real.sources}/far\n-lother\n")
    place = real.sources / file
    for number in (1, 2, 1):
        made = compiled(real, number)
        place.parent.mkdir(exist_ok=True)
        archive(place, made) if place.suffix == ".a" else shutil.copyfile(made, place)
        assert value(real, extra_ldflags=[given.format(real.sources)]) == number


def test_an_edited_file_of_the_linkers_flags(real):
    real.write("source.cpp", LINKED)
    for number in (1, 2, 1):
        archive(real.sources / f"{number}" / "libother.a", compiled(real, number))
        real.write("words", f"-L{real.sources}/{number} -lother")
        assert value(real, extra_ldflags=[f"-Wl,@{real.sources}/words"]) == number


def test_what_the_linker_reads_is_compiled_into_nothing(real, capfd):
    """Nor is a path that is the value of a macro."""
    real.write("source.cpp", LINKED)
    library, log = real.sources / "far" / "libother.a", real.write("log", "a line\n")
    for number in (1, 2):
        archive(library, compiled(real, number))
        log.write_text(f"{number} lines\n")
        flags = {"extra_ldflags": [str(library)], "extra_cflags": [f"-DLOG={log}"]}
        assert value(real, **flags) == number
    assert capfd.readouterr().err.rstrip().endswith("(0 compiled, 1 reused)")


@pytest.mark.parametrize("option", ["-L", "-Wl,--library-path=", "-Wl,--library-path,"])
def test_a_new_library_in_an_earlier_directory(real, option):
    real.write("source.cpp", LINKED)
    flags = [f"{option}{real.sources}/near", f"{option}{real.sources}/far", "-lother"]
    for number, place in enumerate(("far", "near"), 1):
        archive(real.sources / place / "libother.a", compiled(real, number))
        assert value(real, extra_ldflags=flags) == number


def test_what_a_library_lacks_is_named(real):
    """torch says no more than its path."""
    source = real.write("lacks.cpp", 'int far();\nextern "C" int value() { return far(); }\n')
    told = r"undefined symbol: far\(\)\n   = no source or lib"
    with pytest.raises(BuildError, match=told):
        torch_api.load("lacks", source, is_python_module=False)
