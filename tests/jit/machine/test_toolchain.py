"""What is found on a machine: compilers, ninja, settings; and what is remembered of them."""

import os
import re
import shlex
import shutil
import sys

import ninja
import pytest
from harness import TEXT, text_of
from small_files import MODULE, script

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import reload
from lltm_jit.jit.machine import tools
from lltm_jit.jit.machine.tools import find_ninja
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import files


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"check": "",\n"more": 1}'])
def test_damaged_memo_is_asked_anew(bench, text):
    found = jit.detect()
    (memo,) = bench.builds.glob("tools-*.json")
    known = files.read_json(memo)
    memo.write_text(text or memo.read_text().replace("1.2.3", "6.6.6"))
    assert jit.detect() == found
    assert files.read_json(memo) == known


def test_a_compiler_that_does_not_answer_is_asked_again(bench, monkeypatch):
    """It may have waited for a licence."""
    with monkeypatch.context() as patch:
        patch.setattr(tools, "asked", lambda *command: (1, ""))
        assert jit.detect().cxx_version == ""
    assert jit.detect().cxx_version == "c++ (Fake) 1.2.3"


@pytest.mark.parametrize("command", ["{ccache} {cxx}", "env A=1 {cxx}", "{cxx} -DA"])
def test_a_compiler_in_several_words(bench, monkeypatch, command):
    ccache = script(bench.directory / "ccache", 'exec "$@"')
    monkeypatch.setenv("CXX", command.format(ccache=ccache, cxx=bench.environment["CXX"]))
    found = jit.detect()
    assert (found.cxx, found.cxx_version) == (os.environ["CXX"], "c++ (Fake) 1.2.3")
    assert text_of(bench.load()) == TEXT
    bench.write_compiler("c++ (Fake) 2.0.0")
    assert jit.detect().cxx_version == "c++ (Fake) 2.0.0"


@pytest.mark.parametrize("change", ["another", "earlier"])
def test_a_compiler_behind_a_ccache_under_its_name(bench, monkeypatch, change):
    """As distributions install it: a link to ccache, which starts the next c++ on PATH."""
    ccache = script(bench.directory / "tools" / "ccache", 'PATH="${PATH#*:}" exec c++ "$@"')
    (bench.directory / "links").mkdir()
    (bench.directory / "links" / "c++").symlink_to(ccache)
    places = [str(bench.directory / name) for name in ("links", "early", "bin")]
    monkeypatch.setenv("PATH", os.pathsep.join([*places, os.environ["PATH"]]))
    monkeypatch.setenv("CXX", "c++")
    bench.load()
    assert jit.detect().cxx_version == "c++ (Fake) 1.2.3"
    bench.write_compiler("c++ (Fake) 2.0.0", "bin" if change == "another" else "early")
    assert jit.detect().cxx_version == "c++ (Fake) 2.0.0"
    assert bench.load().info.reason.startswith("the compiler changed from c++ (Fake) 1.2.3")


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ("g++ (GCC) 14.1\nCopyright (C) 2024 Free Software Foundation, Inc.", "gcc"),
        ("x86_64-conda-linux-gnu-c++ 12\nCopyright Free Software Foundation, Inc.", "gcc"),
        ("Ubuntu clang version 18.1\nTarget: x86_64-pc-linux-gnu", "clang"),
        ("Intel(R) oneAPI DPC++/C++ Compiler 2025.0\nTarget: x86_64-unknown-linux-gnu", ""),
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.40", ""),
        ("nvc++ 25.1-0 64-bit target on x86-64 Linux -tp haswell", ""),
    ],
)
def test_which_compilers_are_gcc(bench, monkeypatch, said, family):
    monkeypatch.setattr(tools, "asked", lambda *command: (0, said))
    assert jit.detect().cxx_family == family


def test_native_code_is_for_one_processor(bench, monkeypatch):
    cpus = bench.directory / "cpuinfo"
    monkeypatch.setattr(tools, "_CPUS", cpus)
    cpus.write_text("model name : one\nflags : avx\n")
    flags = {"cflags": ("-march=native",)}
    keys = [bench.load().info.key, bench.load(**flags).info.key]
    cpus.write_text("model name : two\nflags : sse\n")
    assert bench.load().info.key == keys[0]
    build = bench.load(**flags)
    assert build.info.key not in keys
    assert re.match(r"the processor changed from one \(\w+\) to two \(", build.info.reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CXX", "'c++"), ("CXX", " "), ("LLTM_JIT_TRUST_ROOT", "perhaps"), ("PATH", "/nowhere")],
)
def test_detect_survives_what_cannot_be_used_or_is_missing(bench, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    if name == "PATH":
        monkeypatch.setenv("CXX", "no-such-compiler")
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/dev/null/nowhere")
    found = jit.detect()
    assert name == "LLTM_JIT_TRUST_ROOT" or (found.cxx, found.cxx_version) == (None, "")


def test_ninja_is_taken_from_its_wheel_else_from_path(bench, monkeypatch, tmp_path):
    """What lies beside it in the wheel's folder does not come before PATH."""
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "ninja").symlink_to(find_ninja())
    (wheel / "c++").symlink_to("/bin/false")
    monkeypatch.setattr(ninja, "BIN_DIR", str(wheel))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    monkeypatch.setenv("CXX", "c++")
    assert find_ninja() == wheel / "ninja"
    bench.first()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ninja", None)  # as if it were not installed
    with pytest.raises(jit.ToolchainError, match="ninja was not found; run `python -m pip install"):
        find_ninja()
    other = tmp_path / "ninja"
    other.touch(mode=0o755)
    assert find_ninja() == other


def test_a_setting_that_is_not_utf_8_is_logged_and_used(bench):
    result = bench.run(CPATH="/gr\udcf6")
    log = bench.builds / result["key"] / "build.log"
    assert "CPATH=/gr\\udcf6" in log.read_text()


@pytest.mark.parametrize("name", ["CXX", "CC", "NVCC_CCBIN", "PYTORCH_NVCC", "nvcc", "a folder"])
def test_an_edited_compiler_that_is_a_script_gives_another_key(cuda, toolkit, monkeypatch, name):
    """Also one that a variable names for nvcc, or its host compiler; torch hands on CC."""
    compiler = toolkit / "bin" / "nvcc"
    if name != "nvcc":
        compiler = script(cuda.directory / "gcc", f'exec {os.environ["CXX"]} "$@"')
        if name == "a folder":  # in which nvcc looks for its host compiler
            monkeypatch.setenv("NVCC_CCBIN", str(compiler.parent))
        else:
            monkeypatch.setenv(name, str(compiler))
    before = Request(cuda.spec()).key
    compiler.write_text(f"{compiler.read_text()}# edited\n")
    after = Request(cuda.spec()).key
    assert before != after
    assert Request(cuda.spec()).key == after


@pytest.mark.parametrize("name", ["", "CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "a flag"])
def test_clang_as_nvccs_host_compiler_gets_no_flag_of_gcc(cuda, toolkit, monkeypatch, name):
    flags = ("-ccbin=clang++",) if name == "a flag" else ()
    if name.isupper():
        value = "-ccbin clang++" if name.endswith("FLAGS") else "clang++"
        monkeypatch.setenv(name, value)
    asked = Request(cuda.spec(cuda_cflags=flags))
    assert ("-fno-gnu-unique" in asked.cuda_cflags) == (name == "")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["clang++", "ccache g++", "ccache clang++", "ccache"])
def test_build_edit_and_error_by_another_compiler(root, tmp_path, monkeypatch, command):
    """By CXX, or the last one as torch finds it on PATH."""
    for word in shlex.split(command):
        if shutil.which(word) is None:
            pytest.skip(f"there is no {word}")
    if command != "ccache":
        monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    source, header = tmp_path / "one.cpp", tmp_path / "value.h"
    header.write_text("#define VALUE 1\n")
    source.write_text(f'#include "value.h"\n{MODULE}')
    module = torch_api.load("one", source)
    assert module.value() == 1
    torch_api.build("one", source, force=True)  # by ccache without the compiler
    for value in (2, 3):
        header.write_text(f"#define VALUE {value}\n")
        assert reload.reload_module(module).changed == ("value.h changed",)
        assert module.value() == value
    source.write_text(f'#include "value.h"\n{MODULE}int x = nonsense;\n')
    with pytest.raises(jit.BuildError, match=r"nonsense.*\n  --> .*one\.cpp:\d+:9\n"):
        reload.reload_module(module)
