"""Builds that were made elsewhere: in a wheel of a user's own, and where no compiler is left, as in
the last stage of a container. And a process that is not Python's own program.
"""

import shutil
import sys
import types
from pathlib import Path

import pytest
from harness import TEXT, text_of
from small_files import write

from lltm_jit import jit
from lltm_jit.jit import torch_api, wheel
from lltm_jit.jit.compile import ninja
from lltm_jit.jit.loading import engine, reload
from lltm_jit.jit.loading import packaged as packages
from lltm_jit.jit.machine import gpus
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


@pytest.mark.parametrize("shipped", [True, False])
def test_a_header_beside_the_sources_directory(packaged, tmp_path, capsys, shipped):
    """One that is not shipped may be another version where the wheel is used, or not be there."""
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    folder = (package if shipped else tmp_path) / "include"
    write(folder / "own.h", "one\n")
    given = {"extra_include_paths": [folder]}
    fits = put(**given)
    assert fits(**given)
    (folder / "own.h").write_text("another\n")
    assert fits(**given) is not shipped
    told = "packaged library of _C is not used: include/own.h changed"
    assert (told in capsys.readouterr().err) == shipped
    shutil.rmtree(folder)
    assert fits(**given) or shipped


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
def test_flags(built, asked, expected):
    assert (packages._chosen(built) == packages._chosen(asked)) is expected


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


@pytest.fixture
def stage(bench, monkeypatch):
    """Take the compilers away, and what else the first stage had."""

    def begin():
        shutil.rmtree(bench.directory / "bin")
        shutil.rmtree(bench.directory / "cuda", ignore_errors=True)
        bench.environment |= {"PATH": str(bench.directory / "nowhere"), "CXX": ""}
        for name in ("PATH", "CXX"):
            monkeypatch.setenv(name, bench.environment[name])
        bench.counts.clear()

    return begin


def test_what_was_built_is_loaded(bench, stage):
    first = bench.run(LIBRARY_PATH="/stubs")  # a variable that only the first stage has
    stage()
    for environment in ({}, {"LLTM_JIT_DISABLE_JIT": "1"}):
        again = bench.run(**environment)
        assert (again["key"], again["cached"], again["said"]) == (first["key"], True, "")
    assert bench.counts == []


def test_load_of_ones_own_sources_and_of_a_build_directory(bench, stage):
    given = {"extra_cflags": ["-DX"]}
    first = torch_api.load("_C", bench.sources, **given)
    elsewhere = bench.directory / "elsewhere"
    path = torch_api.load("_C", bench.sources, build_directory=elsewhere, is_python_module=False)
    stage()
    assert torch_api.load("_C", bench.sources, **given) is first
    again = torch_api.load("_C", bench.sources, build_directory=elsewhere, is_python_module=False)
    assert again == path
    with pytest.raises(jit.ToolchainError, match=r"no C\+\+ compiler was found"):
        torch_api.load("_C", bench.sources, extra_cflags=["-DY"])


@pytest.mark.parametrize("capability", [(), (9, 0), (7, 5)])
def test_what_was_built_with_cuda(cuda, toolkit, stage, monkeypatch, capability):
    """On a machine without a GPU it is loaded, too; but not where it has no code for the GPU."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    first = jit.inspect(cuda.load().spec)
    stage()
    for name in ("CUDA_HOME", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: [capability] * bool(capability))
    found = jit.inspect(cuda.spec())
    assert first.architectures == ("8.0", "9.0+PTX")
    assert found == (None if capability == (7, 5) else first)


def test_the_compilers_headers_need_not_be_there(bench, stage, tmp_path_factory):
    header = tmp_path_factory.mktemp("system") / "theirs.h"
    header.write_text("theirs\n")
    bench.write("one/one.cpp", '#include "theirs.h"\none\n')
    given = {"extra_cflags": [f"-I{header.parent}"]}
    first = torch_api.load("_C", bench.sources, **given)
    stage()
    header.write_text("another\n")
    with pytest.raises(jit.ToolchainError):
        torch_api.load("_C", bench.sources, **given)
    shutil.rmtree(header.parent)
    assert torch_api.load("_C", bench.sources, **given) is first


@pytest.mark.parametrize("name", ["one/one.cpp", "core/shared.h", ""])
def test_what_is_edited_or_for_another_torch_asks_for_a_compiler(bench, stage, name):
    bench.run()
    stage()
    if name:
        bench.write(name, "edited\n")
    result = bench.run(**({} if name else {"FAKE_TORCH_VERSION": "2.0"}))
    assert result["error"] == "ToolchainError"
    assert "no C++ compiler was found; install one" in result["message"]


@pytest.mark.parametrize("executable", ["", "/bin/true"])
def test_a_program_that_embeds_python(bench, monkeypatch, executable):
    """It names itself as Python's executable, or nothing."""
    monkeypatch.setattr(sys, "executable", executable)
    assert text_of(bench.load()) == TEXT
    for prefix in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, prefix, str(bench.directory))
    message = r"there is no python3\.\d+ in .*set sys\.executable"
    with pytest.raises(jit.ToolchainError, match=message):
        ninja.interpreter()
