"""The precompiled header changes no result: with g++, and a small header in torch's place."""

from __future__ import annotations

import os
import subprocess

import pytest
from engine_bench import slow

from lltm_jit.jit import BuildSpec, detect
from lltm_jit.jit.compile import pch
from lltm_jit.jit.store import cache
from lltm_jit.jit.user.progress import Reporter

INCLUDE = "#include <torch/extension.h>\n"


@pytest.fixture
def real(tmp_path, monkeypatch):
    monkeypatch.setattr(pch, "_MEMORY", 0)
    monkeypatch.setattr(pch, "_DISK", 0)
    monkeypatch.setenv("LLTM_JIT_PCH", "1")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    if detect().cxx_family != "gcc":
        pytest.skip("the compiler is not g++")
    include = tmp_path / "include"
    (include / "torch").mkdir(parents=True)
    (include / "torch" / "extension.h").write_text(
        "#pragma once\n#include <torch/other.h>\n#include <vector>\n"
        "#ifdef LEVEL\n#define VALUE LEVEL\n#else\n#define VALUE OTHER\n#endif\n"
    )
    (include / "torch" / "other.h").write_text("#define OTHER 1\n")
    cache.make_builds_directory()
    return tmp_path


def value(tmp_path, flags: str = "", before: str = "") -> tuple[int, bool]:
    """What a program prints, and whether its compiler took a precompiled header."""
    source = tmp_path / "x.cpp"
    source.write_text(
        f'{before}{INCLUDE}#include <cstdio>\nint main() {{ std::printf("%d", VALUE); }}\n'
    )
    file = tmp_path / "build.ninja"
    options = f"-DTORCH_EXTENSION_NAME=x -isystem {tmp_path}/include -fPIC {flags}"
    file.write_text(f"cxx = c++\ncflags = {options}\n")
    spec = BuildSpec("x", (source,), with_header=True)
    with pch.beside(file, spec, detect(), Reporter()) as variables:
        done = subprocess.run(
            ["c++", "-H", *options.split(), str(source), "-o", str(tmp_path / "x")],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
    out = subprocess.run([tmp_path / "x"], capture_output=True, text=True).stdout
    return int(out), any(line.startswith("! ") for line in done.stderr.splitlines())


def test_gcc_takes_it(real):
    assert value(real) == (1, True)
    assert value(real, "-O2") == (1, True)
    assert value(real, "-DLEVEL=5") == (5, True)


def test_gcc_refuses_it_after_a_macro_that_it_would_have_seen(real):
    assert value(real) == (1, True)
    assert value(real, before="#define LEVEL 7\n") == (7, False)
    assert value(real, before="#define UNKNOWN 7\n") == (1, True)


@pytest.mark.slow
def test_gcc_takes_it_where_it_is_included_again(real):
    (real / "own.h").write_text(f"{INCLUDE}#include <torch/other.h>\n")
    assert value(real) == (1, True)
    assert value(real, before=INCLUDE) == (1, True)
    assert value(real, "-Wpedantic -Werror", before=INCLUDE) == (1, True)
    assert value(real, before=f'{INCLUDE}#include "own.h"\n') == (1, True)
    assert value(real, before=f'#define LEVEL 7\n#include "own.h"\n{INCLUDE}') == (7, False)


def test_an_edited_header_of_torch_is_seen(real):
    assert value(real) == (1, True)
    (real / "include" / "torch" / "other.h").write_text("#define OTHER 2\n")
    assert value(real) == (2, True)


@pytest.mark.parametrize("name", ["torch/other.h", slow("other.h")])
def test_a_header_of_the_build_that_comes_first_is_seen(real, name):
    assert value(real) == (1, True)
    (real / "own" / "torch").mkdir(parents=True)
    (real / "own" / "unrelated.h").touch()
    assert value(real, f"-I{real}/own") == (1, True)
    (real / "own" / name).write_text("#define OTHER 3\n")
    expected = 3 if name == "torch/other.h" else 1
    assert value(real, f"-I{real}/own") == (expected, False)


@pytest.mark.slow
def test_a_header_that_is_asked_for_and_comes_later_is_seen(real):
    (real / "include" / "torch" / "other.h").write_text(
        "#if __has_include(<more.h>)\n#define OTHER 4\n#else\n#define OTHER 1\n#endif\n"
    )
    (real / "own").mkdir()
    assert value(real, f"-I{real}/own") == (1, True)
    (real / "own" / "more.h").touch()
    assert value(real, f"-I{real}/own") == (4, False)


def test_a_depfile_lists_what_the_header_was_made_from(real):
    assert value(real) == (1, True)
    depfile = real / "x.o.d"
    depfile.write_text("x.o: x.cpp \\\n y.h\n")
    assert value(real) == (1, True)
    told = depfile.read_text()
    assert told.startswith("x.o: x.cpp \\\n y.h /")
    assert f" {real}/include/torch/other.h" in told
