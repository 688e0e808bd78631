"""The precompiled header: when it is made and used, and that it changes no result."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_bench import alive, compiler_pid, wait_for
from real_files import value_of
from torch.utils import cpp_extension

from lltm_jit import jit
from lltm_jit.jit.compile import pch
from lltm_jit.jit.loading import engine
from lltm_jit.jit.machine.toolchain import detect
from lltm_jit.jit.request.request import Request

INCLUDE = "#include <torch/extension.h>\n"
FIRST = "// what it is\n/* and * why */ #pragma once\n" + INCLUDE
VALUE = 'extern "C" int value() { return VALUE; }\n'


@pytest.fixture(autouse=True)
def room(monkeypatch):
    monkeypatch.setattr(pch, "_MEMORY", 0)
    monkeypatch.setattr(pch, "_DISK", 0)
    monkeypatch.setenv("LLTM_JIT_PCH", "1")


@pytest.fixture
def own(bench):
    """A source that begins with the include, beside one that does not."""
    bench.write("one/one.cpp", f"{FIRST}one\n")
    return bench


def made(bench) -> Path:
    """The header, once it is there."""
    wait_for(lambda: [*bench.builds.glob("pch/*/header.json")])
    return next(bench.builds.glob("pch/*/header.json")).parent


def test_is_made_beside_the_first_build_and_used_by_the_next(own):
    own.load()
    made(own)
    assert own.counts == sorted(["compile one.cpp", "compile two.cpp", "header", "link"])
    own.write("one/one.cpp", f"{FIRST}two\n")
    assert own.load().info.compiled == 1
    assert own.counts == ["compile one.cpp with a header", "link"]


@pytest.mark.parametrize(
    "text", ["one\n", "int x;\n" + INCLUDE, "/**/" * 40, '#include "a.h"\n' + INCLUDE]
)
def test_is_not_made_for_a_source_that_begins_otherwise(bench, text):
    bench.write("one/one.cpp", text)
    bench.load()
    assert not (bench.builds / "pch").exists()


@pytest.mark.parametrize("setting", ["LLTM_JIT_PCH=0", "CPATH=/nowhere", "MAX_JOBS=1", "clang"])
def test_is_not_made_where_it_is_not_wanted(own, setting, monkeypatch):
    if setting == "clang":
        own.write_compiler("clang version 19")
    else:
        monkeypatch.setenv(*setting.split("="))
    own.load()
    assert not (own.builds / "pch").exists()


def header_of(own, flags: str, cxx: str = "c++", **tools: str) -> pch.Header | None:
    request = Request(own.spec(), detect()._replace(**tools))
    return pch.of(request, SimpleNamespace(variables={"cxx": cxx, "cflags": flags}))


@pytest.mark.parametrize(
    "flags", ["-include x.h", "@flags", "-Wp,-DX", "-I$HOME", "-DX='`id`'", "-Winvalid-pch"]
)
def test_is_not_made_where_a_flag_may_change_what_is_included(own, flags):
    assert header_of(own, f"-O2 {flags}") is None


def test_one_header_for_all_names_and_include_paths_and_another_for_other_flags(own):
    usual = "-isystem /t -fPIC -std=c++17"
    first = header_of(own, f"-DTORCH_EXTENSION_NAME=a {usual}")
    assert first.command == ("c++", *usual.split())
    assert header_of(own, f"-DTORCH_EXTENSION_NAME=b {usual} -I/x -I /y") == first
    others = [usual.replace("/t", "/u"), usual.replace("17", "20"), usual.replace("-fPIC", "")]
    others += [f"{usual} {flag}" for flag in ("-O2", "-g", "-DNDEBUG", "-march=native", "-UX")]
    found = [header_of(own, flags) for flags in others] + [header_of(own, usual, "g++")]
    for tools in ({"cxx_version": "9"}, {"torch_version": "1"}, {"python_abi": "x"}):
        found.append(header_of(own, usual, **tools))
    assert len({first.key, *(each.key for each in found)}) == 13


def test_a_compiler_that_fails_is_not_asked_again(own, monkeypatch):
    monkeypatch.setenv("FAKE_HEADER", "error no")
    for text in ("one", "two"):
        own.write("one/one.cpp", f"{FIRST}{text}\n")
        own.load(wait_for_header=True)
    assert own.counts.count("header") == 1
    record = made(own) / "header.json"
    assert "error: no" in json.loads(record.read_text())["failed"]
    os.utime(record, (0, 0))  # another day
    monkeypatch.delenv("FAKE_HEADER")
    own.write("one/one.cpp", f"{FIRST}three\n")
    own.load(wait_for_header=True)
    assert "compile one.cpp with a header" in own.counts


def test_one_is_made_at_a_time_and_outlives_the_process(own, tmp_path):
    gate = tmp_path / "gate"
    own.run(FAKE_HEADER=f"wait {gate}")
    assert alive(compiler_pid(gate))
    own.load(cflags=("-DX",))
    assert own.counts.count("header") == 1
    assert pch.taken_jobs() == 1
    Path(f"{gate}.go").touch()
    made(own)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_maker_leaves_nothing_that_is_used(own, tmp_path, monkeypatch, number):
    gate = tmp_path / "gate"
    monkeypatch.setenv("FAKE_HEADER", f"wait {gate}")
    own.load()
    compiler = compiler_pid(gate)
    maker = int(re.search(r"PPid:\t(\d+)", Path(f"/proc/{compiler}/status").read_text())[1])
    os.kill(maker, number)
    if number == signal.SIGKILL:
        os.kill(compiler, number)
    wait_for(lambda: not alive(compiler) and not alive(maker))
    monkeypatch.delenv("FAKE_HEADER")
    own.write("one/one.cpp", f"{FIRST}two\n")
    own.load(wait_for_header=True)
    assert "compile one.cpp with a header" in own.counts


@pytest.fixture
def value(real, monkeypatch):
    """Build a source with g++, and a small header in torch's place.

    Its value, and whether the compiler took a precompiled header.
    """
    include = real.directory / "include"
    log, script = real.directory / "taken", real.directory / "g++"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *" -c "*) exec c++ -H "$@" 2>>{log} ;; esac\nexec c++ "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setattr(cpp_extension, "include_paths", lambda *_: [str(include)])
    if detect().cxx_family != "gcc":
        pytest.skip("the compiler is not g++")
    real.write("../include/torch/extension.h", "#pragma once\n#include <torch/other.h>\n")
    real.write("../include/torch/other.h", "#ifndef VALUE\n#define VALUE 1\n#endif\n")

    def build(text: str, **changes) -> tuple[int, bool]:
        log.unlink(missing_ok=True)
        source = real.write("source.cpp", f"{text}{VALUE}")
        spec = jit.Spec("value", (str(source),), python_module=False, wait_for_header=True)
        found = value_of(str(engine.build(spec._replace(**changes)).library))
        return found, log.exists() and "\n! " in f"\n{log.read_text()}"

    return build


def test_gcc_takes_it_where_it_changes_nothing(value, real):
    assert value(INCLUDE) == (1, True)
    assert value(f"{INCLUDE}// again\n{INCLUDE}", cflags=("-Wpedantic", "-Werror")) == (1, True)
    assert value(f"#define UNKNOWN 7\n{INCLUDE}") == (1, True)
    assert value(f"#define VALUE 7\n{INCLUDE}") == (7, False)
    (real.sources / "own" / "torch").mkdir(parents=True)
    own = {"include_paths": (str(real.sources / "own"),)}
    real.write("own/torch/other.h", "#define VALUE 3\n")  # found first
    assert value(INCLUDE, **own) == (3, False)


def test_hosts_that_share_a_cache_have_one_header(value, real):
    """Each has torch's files under inodes and times of its own."""
    assert value(INCLUDE) == (1, True)
    (header,) = real.builds.glob("pch/*/torch/extension.h.gch")
    made = header.stat().st_mtime_ns
    theirs = real.directory / "include" / "torch" / "other.h"
    shutil.copy(theirs, theirs.with_name("copy"))
    os.replace(theirs.with_name("copy"), theirs)
    assert value(f"{INCLUDE}// another source\n") == (1, True)
    assert header.stat().st_mtime_ns == made


STARTS = {
    "it": INCLUDE,
    "a macro": "#define A <torch/extension.h>\n#include A\n",
    "a digraph": "%:include <torch/extension.h>\n",
    "a line continuation": "#inc\\\nlude <torch/extension.h>\n",
    "a header": '#include "own.h"\n',
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_an_edited_header_of_torch_is_seen_by_every_source(value, real, start):
    """Also by one that gets it, or not, though the engine cannot tell."""
    real.write("own.h", INCLUDE)
    beside = real.write("beside.cpp", INCLUDE)
    paths = (str(real.sources / "source.cpp"), str(beside))
    for number in (1, 2, 1):
        real.write("../include/torch/other.h", f"#define VALUE {number}\n")
        assert value(start, paths=paths)[0] == number
