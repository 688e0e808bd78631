"""A cache that was filled elsewhere, where there is no compiler: the last stage of a container.

And a process that is not Python's own program.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from engine_bench import text_of

from lltm_jit import jit
from lltm_jit.jit.compile import ninja
from lltm_jit.cli import main
from lltm_jit.jit import torch_api
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.store import cache

CUDA = {"FAKE_TORCH_CUDA": "13.0", "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}


@pytest.fixture
def stage(bench, monkeypatch):
    """Take the compilers away, and what else the first stage had."""

    def begin():
        shutil.rmtree(bench.directory / "bin")
        shutil.rmtree(bench.directory / "cuda", ignore_errors=True)
        for variables in (bench.environment, None):
            nowhere = {"PATH": str(bench.directory / "nowhere"), "CXX": ""}
            for name, value in nowhere.items():
                if variables is None:
                    monkeypatch.setenv(name, value)
                else:
                    variables[name] = value
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


def test_commands_about_a_build_directory(bench, stage, capsys):
    elsewhere = bench.directory / "elsewhere"
    torch_api.load("_C", bench.sources, build_directory=elsewhere)
    stage()
    assert main(["info", str(elsewhere)]) == main(["cache", "why", str(elsewhere)]) == 0
    said = capsys.readouterr().out
    assert "found in the cache; it took " in said
    assert "_C: lltm_jit.load loads " in said


def test_what_was_built_with_cuda_on_a_machine_without_a_gpu(bench, stage, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    bench.write("three.cu", "three\n")
    first = bench.run(**CUDA, CUDA_HOME=str(bench.write_nvcc()))
    assert first["text"].endswith("three\ntwo")
    stage()
    again = bench.run(FAKE_TORCH_CUDA="13.0")
    assert (again["key"], again["cached"]) == (first["key"], True)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: [(9, 0)])
    assert jit.detect("_C").architectures == ("8.0", "9.0+PTX")
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: [(7, 5)])
    assert jit.detect("_C").architectures == ()  # there is no build for it


def test_the_compilers_headers_need_not_be_there(bench, stage, monkeypatch):
    from lltm_jit.jit.store import manifest

    monkeypatch.setattr(manifest, "_OUTSIDE", (f"{bench.directory}/system/",))
    header = bench.directory / "system" / "theirs.h"
    header.parent.mkdir()
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


def test_one_record_is_read_for_the_compilers(bench, stage, monkeypatch):
    """Of the build used last. There may be hundreds, and each is some tens of kilobytes."""
    used, *others = (
        Path(torch_api.load("_C", bench.sources, extra_cflags=[flag]).__file__).parent
        for flag in ("-DX", "-DY", "-DZ")
    )
    for other in others:  # a file system's clock may tick only every few milliseconds
        os.utime(other / cache.RECORD, (0, 0))
    stage()
    read, read_record = [], cache.read_record
    monkeypatch.setattr(
        cache, "read_record", lambda place: read.append(place) or read_record(place)
    )
    assert jit.detect("_C").recorded
    assert jit.detect().recorded
    assert read == [used] * 2


@pytest.mark.parametrize("name", ["one/one.cpp", "core/shared.h"])
def test_edited_sources_ask_for_a_compiler(bench, stage, name):
    bench.run()
    stage()
    bench.write(name, "edited\n")
    result = bench.run()
    assert result["error"] == "ToolchainError"
    assert "no C++ compiler was found; install one" in result["message"]


def test_a_build_for_another_torch_is_none(bench, stage):
    bench.run()
    stage()
    assert bench.run(FAKE_TORCH_VERSION="2.0")["error"] == "ToolchainError"


def why(capsys, path: Path) -> str:
    assert main(["cache", "why", str(path)]) == 0
    return capsys.readouterr().out


def test_why(bench, stage, monkeypatch, capsys):
    source = bench.write("mine.cpp", "mine\n")
    torch_api.load("mine", source, is_python_module=False)
    stage()
    assert "by g++ 1.2, not found now, because:\n  - first build\n" in why(capsys, source)
    source.write_text("edited\n")
    told = why(capsys, source)
    assert told.startswith("mine: lltm_jit.load would build it, because:\n  - mine.cpp changed\n")
    assert "  That would fail: no C++ compiler was found; install" in told
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    assert "  That would fail: LLTM_JIT_DISABLE_JIT forbids building\n" in why(capsys, source)
    monkeypatch.setattr("torch.__version__", "2.0")
    assert "  - torch changed from " in why(capsys, source)
    assert "flags" not in why(capsys, source)


@pytest.mark.parametrize("executable", ["", "/bin/true"])
def test_a_program_that_embeds_python(bench, monkeypatch, executable):
    """It names itself as Python's executable, or nothing."""
    monkeypatch.setattr(sys, "executable", executable)
    assert text_of(bench.load()) == "shared header\none\ntwo"
    for prefix in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, prefix, str(bench.directory))
    message = r"there is no python3\.\d+ in .*set sys\.executable"
    with pytest.raises(jit.ToolchainError, match=message):
        ninja.interpreter()
