"""A library that came in a wheel of a user's own: what it must have been built of to be used."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest

from lltm_jit.jit import detect, torch_api, wheel
from lltm_jit.jit.loading import prebuilt, reload
from lltm_jit.jit.store import cache, checked_json


@pytest.fixture
def packaged(bench, tmp_path, monkeypatch):
    """Put a package into a wheel whose kernels are two/ with these arguments.

    Whether it fits afterwards what the installed package asks for.
    """
    site, built = tmp_path / "site", tmp_path / "built"
    sources = site / "mine" / "csrc"
    shutil.copytree(bench.sources / "two", sources)

    def fits(**arguments):
        return torch_api.extension("_C", sources, **arguments).packaged_info(detect()) is not None

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
    assert (
        "the packaged library of _C is not used: include/own.h changed" in capsys.readouterr().err
    )


def test_a_header_that_is_not_shipped(packaged, tmp_path):
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "own.h").write_text("one\n")
    given = {"extra_include_paths": [tmp_path / "common"]}
    fits = put(**given)
    shutil.rmtree(tmp_path / "common")
    assert fits(**given)


@pytest.mark.parametrize(
    ("built", "asked", "expected"),
    [
        (["-D", "N=4"], ["-D", "N=4"], True),
        (["-D", "N=4"], ["-DN=4"], True),
        (["-D N=4"], ["-DN=4"], True),
        (["-D", "N=4"], ["-D", "N=8"], False),
        (["-DN=4"], ["-DN=4", "-U", "N"], False),
        (["-DN='a b'"], ["-DN='a c'"], False),
        (["-DN=4"], ["-DN=4", "-DWITH_CUDA"], True),
        ([], ["-ffast-math"], False),
        (["-O2", "-ffast-math"], ["-ffast-math -O2"], False),
        (["-march=x86-64"], ["-march=x86-64"], True),
    ],
)
def test_flags(packaged, built, asked, expected):
    put, _ = packaged
    fits = put(extra_cflags=built)
    assert fits(extra_cflags=asked) is expected


def test_other_flags_are_told(packaged, capsys):
    put, _ = packaged
    assert not put(extra_cflags=["-O2"])(extra_cflags=["-ffast-math"])
    said = "_C is not used: the C++ flags were -O2 and are -ffast-math\n"
    assert capsys.readouterr().err.endswith(said)


def test_everything_that_decides_what_a_library_is(packaged, bench, monkeypatch):
    """Each entry of a record's request, as it is asked for or as the machine gives it."""
    put, package = packaged
    (package / "csrc" / "one.cpp").write_text("one\n")
    fits = put()
    assert fits()
    assert not fits(extra_ldflags=["-Wl,-O1"])
    assert not fits(is_python_module=False)
    assert not fits(is_python_module=False, is_standalone=True)
    for name in ("CCC_OVERRIDE_OPTIONS", "NVCC_APPEND_FLAGS"):
        with monkeypatch.context() as here:
            here.setenv(name, "-use_fast_math")
            assert fits() is (name == "NVCC_APPEND_FLAGS")  # no nvcc made this one
    with monkeypatch.context() as here:
        here.setenv("CXX", f"{bench.environment['CXX']} -ffast-math")
        assert not fits()
    place = cache.wheel_record(package / cache.WHEEL_FOLDER, "_C")
    record = checked_json.read(place)
    others = {**record["fingerprint"], "processor": "another"}
    for name in others.keys() - prebuilt.MAY_DIFFER:
        checked_json.write(place, {**record, "fingerprint": {**others, name: "another"}})
        assert not fits(), name
    checked_json.write(place, record)
    (package / "csrc" / "three.cpp").write_text("three\n")
    assert not fits()


def change(path: Path, part: str, **entries: str) -> None:
    """Of a record, which stays whole."""
    record = checked_json.read(path)
    record[part].update(entries)
    checked_json.write(path, record)


MISFITS = {
    "torch was 1.2.3 and is ": lambda record, _: change(record, "fingerprint", torch="1.2.3"),
    "it needs AVX9000, and this processor has ": lambda record, _: change(
        record, "toolchain", cpu_capability="AVX9000"
    ),
    "_C.so is not the file that was built": lambda _, library: library.write_bytes(b"another"),
    "it or its record cannot be read": lambda record, _: record.write_text(
        record.read_text().replace('"seconds": ', '"seconds": 1')
    ),
}


@pytest.mark.parametrize("said", MISFITS)
def test_what_does_not_fit_is_told(packaged, capsys, said):
    put, package = packaged
    fits, folder = put(), package / cache.WHEEL_FOLDER
    assert fits()
    MISFITS[said](cache.wheel_record(folder, "_C"), folder / "_C.so")
    assert not fits()
    assert f"the packaged library of _C is not used: {said}" in capsys.readouterr().err


def test_an_older_processor_and_another_kind_of_build(packaged, monkeypatch):
    put, package = packaged
    fits = put()
    record = cache.wheel_record(package / cache.WHEEL_FOLDER, "_C")
    change(record, "toolchain", cpu_capability="DEFAULT")
    assert fits()
    monkeypatch.setenv("LLTM_JIT_DEBUG", "1")
    assert not fits()


def test_fewer_sources(bench):
    both = [bench.sources / "one" / "one.cpp", bench.sources / "two" / "two.cpp"]
    spec = torch_api.extension("_C", both).spec(detect())
    prebuilt.put(spec, detect(), bench.sources / cache.WHEEL_FOLDER)
    assert torch_api.extension("_C", both).packaged_info(detect())
    fewer = spec._replace(sources=spec.sources[:1])
    assert prebuilt.matching(bench.sources / cache.WHEEL_FOLDER, fewer, detect()) is None


@pytest.mark.parametrize("by_flag", [False, True])
def test_other_include_paths(packaged, tmp_path, by_flag):
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    for name, text in (("first", "one"), ("second", "another"), ("third", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.h").write_text(text)

    def given(*names):
        paths = [str(tmp_path / name) for name in names]
        flags = [f"-I{path}" for path in paths]
        return {"extra_cflags": flags} if by_flag else {"extra_include_paths": paths}

    fits = put(**given("first"))
    assert fits(**given("first"))
    assert not fits(**given("second"))
    assert not fits(**given("second", "first"))
    assert fits(**given("third"))  # which has the same header
    assert fits(**given("first", "second"))
