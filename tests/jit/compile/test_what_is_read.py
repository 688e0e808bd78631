"""What a compiler tells that it reads: a change of such a file gives another build."""

from __future__ import annotations

import os

import pytest
from engine_bench import tiers
from real_files import INCBIN, PLAIN, SOURCE, Way, assert_seen, define, value, value_of

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.request import flags

NO_STACK = '.section .note.GNU-stack,"",@progbits\n'
WAYS = {
    "beside the source": Way(edited="value.h", quick=True),
    "an include path": Way(include_paths=("{}/far",), quick=True),
    "-I with quotes and blanks": Way(edited="so far/value.h", cflags=("-I'{}/so far'",)),
    "-I joined to another flag": Way(cflags=("-DUNUSED -I{}/far",)),
    "--include-directory": Way(cflags=("--include-directory", "{}/far")),
    "-idirafter": Way(cflags=("-idirafter", "{}/far")),
    "-include": Way(PLAIN, cflags=("-include", "{}/far/value.h"), quick=True),
    "a file of flags": Way(more=(("flags", "-I{}/far"),), cflags=("@{}/flags",)),
    "a flag in a file of flags": Way(PLAIN, "flags", cflags=("@{}/flags",), quick=True),
    "a file of flags in one": Way(PLAIN, "flags", ("@{}/more",), more=(("more", "@{}/flags"),)),
    "a file of specs": Way(PLAIN, edited="specs", cflags=("-specs={}/specs",), quick=True),
    "what an assembler includes": Way(INCBIN.replace("FILE", "{}/far/value.h")),
    "CPATH": Way(environment=("CPATH", "{}/far"), quick=True),
    "a macro": Way('#define FILE "value.h"\n#include FILE\n' + PLAIN, "value.h", quick=True),
    "a digraph": Way(SOURCE.replace("#include", "%:include"), cflags=("-I{}/far",)),
    "include_next": Way(
        cflags=("-I{}/near", "-I{}/far"),
        more=(("near/value.h", "#include_next <value.h>\n"),),
        quick=True,
    ),
    "a header that includes it": Way(
        include_paths=("{}/near",), more=(("near/value.h", '#include "../far/value.h"\n'),)
    ),
}


@pytest.mark.parametrize("way", tiers(WAYS))
def test_a_changed_file_gives_another_build(real, monkeypatch, way):
    assert_seen(real, monkeypatch, way)


@pytest.mark.parametrize("how", ["-I", "-isystem", "CPATH"])
def test_a_changed_file_of_a_library(real, monkeypatch, how):
    """Whose folder nobody searches for names, and whose files are compared by stamp first."""
    library = real.directory / "library"
    monkeypatch.setattr(flags, "library_folders", lambda: (f"{library}/",))
    if how == "CPATH":
        monkeypatch.setenv(how, str(library))
    given = [f"{how}{library}"] * (how != "CPATH")
    real.write("source.cpp", SOURCE)
    for number in (1, 2, 1):
        define(library / "value.h", number)
        assert value(real, extra_cflags=given) == number
    os.utime(library / "value.h")  # the same content with another stamp
    assert value(real, extra_cflags=given) == 1
    assert len(list(real.builds.glob("*/ok.json"))) == 2


@pytest.mark.parametrize("edited", ["header", "script"])
def test_a_compiler_that_is_a_script_and_adds_flags(real, monkeypatch, edited):
    script = real.sources / "wrapper"
    monkeypatch.setenv("CXX", str(script))
    real.write("source.cpp", SOURCE)
    for number in (1, 2):
        place = real.sources / ("far" if edited == "header" else f"far{number}")
        define(place / "value.h", number)
        script.write_text(f'#!/bin/sh\nexec c++ -I{place} "$@"\n')
        script.chmod(0o755)
        assert value(real) == number


def test_a_compiler_that_does_not_tell_what_it_reads(real, monkeypatch):
    script = real.sources / "wrapper"
    script.write_text('#!/bin/sh\nc++ "$@" || exit\nrm -f *.o.d\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    real.write("source.cpp", PLAIN.replace("VALUE", "1"))
    with pytest.raises(BuildError, match=r"not report which headers .* CXX must pass on -MMD"):
        value(real)
    monkeypatch.delenv("CXX")
    assert value(real) == 1


def test_a_system_directory_that_is_a_link(real):
    """gcc names its files by their real path where that is shorter."""
    real.write("source.cpp", SOURCE)
    link = real.sources / "the-current-version"
    for number in (1, 2):
        define(real.sources / f"v{number}" / "value.h", number)
        link.unlink(missing_ok=True)
        link.symlink_to(real.sources / f"v{number}")
        assert value(real, extra_cflags=[f"-isystem{link}"]) == number


def test_a_plain_source_of_the_assembler(real):
    """For which g++ writes no depfile, as there is nothing to include by `#`."""
    for number in (1, 2):
        text = f".globl value\nvalue:\nmov ${number}, %eax\nret\n{NO_STACK}"
        source = real.write("source.s", text)
        assert value_of(torch_api.load("value", source, is_python_module=False)) == number


@pytest.mark.parametrize("place", ["", "-I"])
def test_what_an_assemblers_source_includes(real, place):
    name = "value.inc" if place else real.sources / "far" / "value.inc"
    text = f'.globl value\nvalue:\n.include "{name}"\nret\n{NO_STACK}'
    source = real.write("source.S", text)
    given = {"is_python_module": False, "extra_cflags": [f"-I{real.sources}/far"] if place else []}
    for number in (1, 2, 1):
        real.write("far/value.inc", f"mov ${number}, %eax\n")
        assert value_of(torch_api.load("value", source, **given)) == number
