"""A library that came in a wheel of a user's own: what it must have been built of to be used."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest

from lltm_jit.jit import torch_api, wheel
from lltm_jit.jit.loading import engine, reload
from lltm_jit.jit.request.request import TOOLS, Request
from lltm_jit.jit.request.spec import spec
from lltm_jit.jit.store import cache, files


@pytest.fixture
def packaged(bench, tmp_path, monkeypatch):
    """Put a package into a wheel whose kernels are two/ with these arguments.

    Whether it fits afterwards what the installed package asks for.
    """
    site, built = tmp_path / "site", tmp_path / "built"
    sources = site / "mine" / "csrc"
    shutil.copytree(bench.sources / "two", sources)

    def fits(**arguments):
        return engine._in_package(Request(spec("_C", sources, **arguments))) is not None

    def put(**arguments):
        module = torch_api.load("_C", sources, **arguments)
        package = types.ModuleType("mine")
        package.__file__ = str(site / "mine" / "__init__.py")
        monkeypatch.setitem(sys.modules, "mine", package)
        monkeypatch.setattr(wheel, "given_modules", lambda: [(module, reload.given(module))])
        wheel._put("mine", built)
        shutil.copytree(built / "mine", site / "mine", dirs_exist_ok=True)
        return fits

    return put, site / "mine"


def record_of(package: Path) -> Path:
    return package / cache.WHEEL_FOLDER / "_C.json"


def test_a_header_beside_the_sources_directory(packaged, capsys):
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    (package / "include").mkdir()
    header = package / "include" / "own.h"
    header.write_text("one\n")
    given = {"extra_include_paths": [package / "include"]}
    fits = put(**given)
    assert fits(**given)
    header.write_text("another\n")
    assert not fits(**given)
    assert "packaged library of _C is not used: include/own.h changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("built", "asked", "expected"),
    [
        (["-D", "N=4"], ["-D", "N=4"], True),
        (["-D", "N=4"], ["-DN=4"], True),
        (["-D N=4"], ["-DN=4"], True),
        (["-D", "N=4"], ["-D", "N=8"], False),
        (["-DN=4"], ["-DN=4", "-U", "N"], False),
        (["-DN='a b'"], ["-DN='a c'"], False),
        (["-DN=4", "-I", "/here"], ["-DN=4", "-I/there"], True),
        ([], ["-ffast-math"], False),
        (["-O2", "-ffast-math"], ["-ffast-math -O2"], False),
        (["-march=x86-64"], ["-march=x86-64"], True),
    ],
)
def test_flags(packaged, built, asked, expected):
    put, _ = packaged
    assert put(extra_cflags=built)(extra_cflags=asked) is expected


def test_everything_that_decides_what_a_library_is(packaged, monkeypatch):
    """Each entry of a record's content that a machine does not decide, and what is asked for."""
    put, package = packaged
    (package / "csrc" / "one.cpp").write_text("one\n")
    fits = put()
    assert fits()
    assert not fits(extra_ldflags=["-Wl,-O1"])
    assert not fits(is_python_module=False)
    assert not fits(is_python_module=False, is_standalone=True)
    with monkeypatch.context() as here:
        here.setenv("LLTM_JIT_DEBUG", "1")
        assert not fits()
    place = record_of(package)
    record = files.read_json(place)
    others = {**record["content"], "processor": "another"}
    for name in others.keys() - TOOLS:
        files.write_json(place, {**record, "content": {**others, name: "another"}})
        assert not fits(), name
    files.write_json(place, record)
    assert fits()
    (package / "csrc" / "three.cpp").write_text("three\n")
    assert not fits()
    for name in ("one", "three"):
        (package / "csrc" / f"{name}.cpp").unlink()
    assert not fits()


def change(path: Path, part: str, **entries: str) -> None:
    """Of a record, which stays whole."""
    record = files.read_json(path)
    record[part].update(entries)
    files.write_json(path, record)


MISFITS = {
    "torch changed from 1.2.3 to ": lambda path: change(path, "content", torch="1.2.3"),
    "it needs AVX9000, and this processor": lambda path: change(
        path, "toolchain", cpu_capability="AVX9000"
    ),
    "_C.so is not the file that was built": lambda path: path.with_suffix(".so").write_bytes(b"x"),
    "_C.json is not what was written": lambda path: path.write_text(
        path.read_text().replace('"seconds": ', '"seconds": 1')
    ),
    "the C++ flags changed from -O2 to nothing": lambda path: change(path, "spec", cflags=["-O2"]),
}


@pytest.mark.parametrize("said", MISFITS)
def test_what_does_not_fit_is_told_and_the_source_compiled(packaged, bench, capsys, said):
    put, package = packaged
    fits = put()
    assert fits()
    MISFITS[said](record_of(package))
    assert bench.counts
    shutil.rmtree(bench.builds)
    torch_api.build("_C", package / "csrc")
    assert bench.counts == ["compile two.cpp", "link"]
    assert not fits()
    assert f"the packaged library of _C is not used: {said}" in capsys.readouterr().err.replace(
        f"{package}/prebuilt/", ""
    )


def test_an_older_processor(packaged):
    put, package = packaged
    fits = put()
    change(record_of(package), "toolchain", cpu_capability="DEFAULT")
    assert fits()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_header_that_is_not_shipped(packaged, tmp_path, is_there):
    """On the machine that uses the wheel it may be another version, or not be there."""
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    header = tmp_path / "common" / "own.h"
    header.parent.mkdir()
    header.write_text("one\n")
    given = {"extra_include_paths": [header.parent]}
    fits = put(**given)
    header.write_text("two\n") if is_there else shutil.rmtree(header.parent)
    assert fits(**given)
