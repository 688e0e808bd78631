"""What a compiler tells that it reads: a change of such a file gives another build."""

from __future__ import annotations

import os
import re
import shutil
import time

import pytest
from engine_bench import tiers
from real_files import INCBIN, ONE, PLAIN, SOURCE, Way, assert_seen, define, spec_of, value

from lltm_jit import jit
from lltm_jit.jit.compile import files_read
from lltm_jit.jit.request.fingerprint import Request
from lltm_jit.jit.store import cache, checked_json, manifest

DEPFILES = (
    "-MD -MF a.o.d",
    "-MMD -MF a.o.d",
    "--generate-dependencies-with-compile --dependency-output a.o.d",
    "--generate-nonsystem-dependencies-with-compile --dependency-output a.o.d",
)
WAYS = {
    "beside the source": Way(edited="value.h", quick=True),
    "an include path": Way(include_paths=("{}/far",), quick=True),
    "-I": Way(cflags=("-I{}/far",)),
    "-I and a blank": Way(cflags=("-I", "{}/far")),
    "-I joined to another flag": Way(cflags=("-DUNUSED -I{}/far",)),
    "-I in quotes": Way(cflags=('"-I{}/far"',)),
    "-I with quotes and blanks": Way(
        edited="so far/value.h", cflags=("-I'{}/so far'",), quick=True
    ),
    "-I with an escaped blank": Way(edited="so far/value.h", cflags=("-I{}/so\\ far",)),
    "--include-directory": Way(cflags=("--include-directory", "{}/far")),
    "--include-directory=": Way(cflags=("--include-directory={}/far",)),
    "-iquote": Way(cflags=("-iquote{}/far",)),
    "-isystem": Way(cflags=("-isystem", "{}/far")),
    "-idirafter": Way(cflags=("-idirafter", "{}/far")),
    "-include": Way(PLAIN, cflags=("-include", "{}/far/value.h"), quick=True),
    "-imacros": Way(PLAIN, cflags=("-imacros", "{}/far/value.h")),
    "a file of flags": Way(more=(("flags", "-I{}/far"),), cflags=("@{}/flags",)),
    "a flag in a file of flags": Way(PLAIN, edited="flags", cflags=("@{}/flags",), quick=True),
    "a file of flags in a file of flags": Way(
        PLAIN, edited="flags", cflags=("@{}/more",), more=(("more", "@{}/flags"),)
    ),
    "a file of specs": Way(PLAIN, edited="specs", cflags=("-specs={}/specs",), quick=True),
    "what an assembler includes": Way(INCBIN.replace("FILE", "{}/far/value.h")),
    "CPATH": Way(environment=("CPATH", "{}/far"), quick=True),
    "CPLUS_INCLUDE_PATH": Way(environment=("CPLUS_INCLUDE_PATH", "{}/far")),
    "brackets": Way(SOURCE.replace('"value.h"', "<value.h>"), cflags=("-I{}/far",)),
    "a macro": Way(
        '#define FILE "value.h"\n#include FILE\n' + PLAIN, cflags=("-I{}/far",), quick=True
    ),
    "a comment": Way(SOURCE.replace("include", "/* no */ include /* x */"), cflags=("-I{}/far",)),
    "a line continuation": Way(SOURCE.replace("ude ", "ude \\\n"), cflags=("-I{}/far",)),
    "a digraph": Way(SOURCE.replace("#include", "%:include"), cflags=("-I{}/far",)),
    "import": Way(SOURCE.replace("#include", "#import"), cflags=("-I{}/far",)),
    "include_next": Way(
        more=(("near/value.h", "#include_next <value.h>\n"),),
        cflags=("-I{}/near", "-I{}/far"),
        quick=True,
    ),
    "a header that includes it": Way(
        include_paths=("{}/near",),
        more=(("near/value.h", '#include "../far/value.h"\n'),),
        quick=True,
    ),
}


@pytest.mark.parametrize("way", tiers(WAYS))
def test_a_changed_file_gives_another_build(real, monkeypatch, way):
    assert_seen(real, monkeypatch, way)


OUTSIDE = {name: WAYS[name] for name in ("-I", "-isystem", "CPATH", "a macro", "include_next")}


@pytest.mark.parametrize("way", tiers(OUTSIDE, ("-isystem", "include_next")))
def test_a_changed_file_that_is_not_the_users_own(real, monkeypatch, way):
    """As those below /usr/local/include and CUDA_HOME, which are compared by stamp first."""
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{real.sources}/far/", f"{real.sources}/near/"))
    assert_seen(real, monkeypatch, way)


def test_a_header_below_the_cuda_toolkit(real, monkeypatch):
    toolkit = real.write_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    real.write("source.cpp", SOURCE)
    for number in (1, 2):
        define(toolkit / "include" / "value.h", number)
        assert value(real, extra_include_paths=[toolkit / "include"]) == number


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
    with pytest.raises(jit.BuildError, match=r"not report which headers .* CXX must pass on -MMD"):
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


def test_a_touched_header_builds_nothing(real, monkeypatch):
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{real.sources}/far/",))
    header = real.write("far/value.h", ONE[1])
    real.write("source.cpp", SOURCE)
    future = time.time() + 1000
    for _ in range(2):
        assert value(real, extra_cflags=[f"-I{real.sources}/far"]) == 1
        os.utime(header, (future, future))
    assert len(list(real.builds.glob("*/ok.json"))) == 1


def test_another_machine_that_shares_the_cache_reads_system_headers_once(real, monkeypatch):
    """There they have other stamps, and the same content."""
    library = real.directory / "library"
    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{library}/",))
    header = library / "value.h"
    define(header, 1)
    real.write("source.cpp", SOURCE)
    flags = [f"-I{library}"]
    value(real, extra_cflags=flags)
    (record,) = cache.records()
    request = Request.of(spec_of(real, flags), jit.detect())
    read = []
    digest = manifest.digest_if_any
    monkeypatch.setattr(manifest, "digest_if_any", lambda path: read.append(path) or digest(path))

    def reads() -> int:
        read.clear()
        stamps = manifest.Stamps(record.directory)
        assert request.is_of(record.fingerprint, record.manifest, record.places, stamps)
        stamps.save()
        return read.count(str(header))

    for number in range(1, 12):  # machines
        shutil.copyfile(header, library / "other")
        os.replace(library / "other", header)
        os.utime(header, (number, number))
        time.sleep(0.06)  # a stamp that a change right now could leave the same is not believed
        assert [reads(), reads()] == [1, 0]
    known = checked_json.read(record.directory / "stamps.json")
    assert 2 <= len(known[str(header)]) <= manifest._MACHINES
    define(header, 2)
    assert value(real, extra_cflags=flags) == 2
    (record.directory / "stamps.json").write_text("damaged")
    define(header, 1)
    assert reads() == 1
    shutil.rmtree(record.directory)
    assert reads() == 1


@pytest.mark.parametrize("flags", DEPFILES)
def test_who_is_asked_for_the_search_writes_no_depfile(flags):
    assert re.sub(files_read._DEPFILE, "", f"nvcc {flags} -DNAME -c a.cu") == "nvcc -DNAME -c a.cu"
