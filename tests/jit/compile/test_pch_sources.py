"""To whatever source g++ gives the precompiled header, its files are those of the build."""

from __future__ import annotations

import os
import subprocess

import pytest

from lltm_jit.jit import BuildSpec, detect
from lltm_jit.jit.compile import pch
from lltm_jit.jit.store import cache
from lltm_jit.jit.user.progress import Reporter

FIRST = "#include <torch/extension.h>\n"


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compile sources by name as one build; the files that each depends on, and who got a header.

    With g++ itself, and a small header in torch's place.
    """
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LLTM_JIT_PCH", "1")
    monkeypatch.delenv("CXX", raising=False)
    for limit in ("_MEMORY", "_DISK"):
        monkeypatch.setattr(pch, limit, 0)
    if detect().cxx_family != "gcc":
        pytest.skip("the compiler is not g++")
    include = tmp_path / "include" / "torch"
    include.mkdir(parents=True)
    (include / "extension.h").write_text("#pragma once\n#include <torch/other.h>\n")
    (include / "other.h").write_text("#define VALUE 1\n")
    (tmp_path / "own.h").write_text(FIRST)
    cache.make_builds_directory()

    def compile_all(sources: dict[str, str]) -> dict[str, tuple[bool, bool]]:
        for name, text in sources.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        options = f"-DTORCH_EXTENSION_NAME=x -isystem {tmp_path}/include -fPIC"
        build_file = tmp_path / "build.ninja"
        build_file.write_text(f"cxx = c++\ncflags = {options}\n")
        spec = BuildSpec("x", tuple(tmp_path / name for name in sources), with_header=True)
        taken = {}
        with pch.beside(build_file, spec, detect(), Reporter()) as variables:
            for source, target in zip(spec.sources, spec.objects, strict=True):
                command = ["c++", "-H", *options.split(), "-MD", "-MF", f"{target}.d"]
                done = subprocess.run(
                    [*command, "-c", str(source), "-o", target],
                    cwd=tmp_path,
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                taken[source.name] = any(line[:2] == "! " for line in done.stderr.splitlines())
        depfiles = [(tmp_path / f"{target}.d").read_text() for target in spec.objects]
        told = [f"{include}/other.h" in depfile.split() for depfile in depfiles]
        return dict(zip(sources, zip(taken.values(), told, strict=True), strict=True))

    return compile_all


MISSED = {
    "macro.cpp": "#define A <torch/extension.h>\n#include A\nint macro = VALUE;\n",
    "digraph.cpp": "%:include <torch/extension.h>\nint digraph = VALUE;\n",
    "continued.cpp": "#inc\\\nlude <torch/extension.h>\nint continued = VALUE;\n",
    "comment.cpp": "/* a */ # /* b */ include <torch/extension.h>\nint comment = VALUE;\n",
}


def test_every_source_that_gets_the_header_depends_on_its_files(compiled):
    found = compiled({"first.cpp": f"{FIRST}int first = VALUE;\n", **MISSED})
    assert found == dict.fromkeys(found, (True, True))


def test_a_source_that_does_not_get_it_depends_on_what_it_read(compiled):
    sources = {
        "first.cpp": f"{FIRST}int first = VALUE;\n",
        "late.cpp": f"int x;\n{FIRST}int late = VALUE;\n",
        "nested.cpp": '#include "own.h"\nint nested = VALUE;\n',
    }
    found = compiled(sources)
    assert found["first.cpp"] == (True, True)
    assert found["late.cpp"] == (False, True)
    assert found["nested.cpp"][1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.C", FIRST),
        ("a.c++", FIRST),
        ("a.cpp", f"\ufeff{FIRST}"),
        ("a.cpp", "#import <torch/extension.h>\n"),
        ("a.cpp", f"#if 1\n#endif\n// x\n{FIRST}"),
    ],
)
def test_a_header_is_made_for_whatever_begins_with_it(compiled, name, text):
    assert compiled({name: f"{text}int x = VALUE;\n"}) == {name: (True, True)}
