"""What is found on a machine: compilers, ninja, settings; and what is remembered of them."""

from __future__ import annotations

import os
import re
import sys

import ninja
import pytest
from harness import text_of

from lltm_jit import jit
from lltm_jit.jit.machine import tools
from lltm_jit.jit.machine.tools import find_ninja
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
    ccache = bench.directory / "ccache"
    ccache.write_text('#!/bin/sh\nexec "$@"\n')
    ccache.chmod(0o755)
    monkeypatch.setenv("CXX", command.format(ccache=ccache, cxx=bench.environment["CXX"]))
    found = jit.detect()
    assert (found.cxx, found.cxx_version) == (os.environ["CXX"], "c++ (Fake) 1.2.3")
    assert text_of(bench.load()) == "shared header\none\ntwo"
    bench.write_compiler("c++ (Fake) 2.0.0")
    assert jit.detect().cxx_version == "c++ (Fake) 2.0.0"


@pytest.mark.parametrize("change", ["another", "earlier"])
def test_a_compiler_behind_a_ccache_under_its_name(bench, monkeypatch, change):
    """As distributions install it: a link to ccache, which starts the next c++ on PATH."""
    ccache = bench.directory / "tools" / "ccache"
    ccache.parent.mkdir()
    ccache.write_text('#!/bin/sh\nPATH="${PATH#*:}" exec c++ "$@"\n')
    ccache.chmod(0o755)
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
    ("name", "value"), [("CXX", "'c++"), ("CXX", " "), ("LLTM_JIT_TRUST_ROOT", "perhaps")]
)
def test_detect_survives_settings_that_cannot_be_used(bench, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert (jit.detect().cxx is None) == (name == "CXX")


def test_detect_survives_everything_missing(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/dev/null/nowhere")
    found = jit.detect()
    assert (found.cxx, found.cxx_version) == (None, "")


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
