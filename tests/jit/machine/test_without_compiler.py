"""A cache that was filled elsewhere, where there is no compiler: the last stage of a container.

And a process that is not Python's own program.
"""

from __future__ import annotations

import shutil
import sys

import pytest
from harness import text_of

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.compile import ninja
from lltm_jit.jit.machine import gpus


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
def test_what_was_built_with_cuda(cuda, stage, monkeypatch, capability):
    """On a machine without a GPU it is loaded, too; but not where it has no code for the GPU."""
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
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
