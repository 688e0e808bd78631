"""From sources to a loaded module, with compiler runs counted."""

import os
import time

import pytest
from harness import ALL, TEXT, slow, text_of

from lltm_jit import jit
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request import request


@pytest.mark.parametrize("torch", [{}, slow({"REAL_TORCH": "1"})], ids=["in small", "real"])
def test_cold_build_then_cached(bench, torch):
    first = bench.run(**torch)
    assert bench.counts == ALL
    assert (first["cached"], first["reason"], first["compiled"]) == (False, "first build", 2)
    assert first["text"] == TEXT
    second = bench.run(**torch)
    assert bench.counts == []
    assert (second["cached"], second["said"]) == (True, "")
    assert (second["imported"], second["processes"]) == ([], 0)


def test_a_source_that_another_includes_is_compiled_with_it(bench):
    bench.write("one/one.cpp", '#include "two/two.cpp"\n/*\n#include "three.cpp"\n*/\n')
    bench.write("three.cpp", "three\n")
    bench.load()
    assert bench.counts == ["compile one.cpp", "compile three.cpp", "link"]
    assert "deux" in text_of(bench.edited("two/two.cpp", "deux\n", "one.cpp"))


def test_contents_count_and_no_time_stamps(bench):
    """An edit compiles one file, and back again loads the first build."""
    module = bench.first().module
    future = time.time() + 1000
    for name in ("one/one.cpp", "core/shared.h"):
        os.utime(bench.sources / name, (future, future))
    assert bench.load().module is module
    assert bench.counts == []
    os.utime(bench.write("two/two.cpp", "deux\n"), (1e9, 1e9))
    second = bench.load()
    assert bench.counts == ["compile two.cpp", "link"]
    assert (second.info.compiled, second.info.reused) == (1, 1)
    assert second.info.reason == "kernels/two/two.cpp changed"
    assert text_of(second).endswith("deux")
    bench.write("two/two.cpp", "two\n")
    assert bench.load().module is module is not second.module
    assert bench.counts == []


def test_an_added_and_a_removed_source(bench):
    bench.first()
    assert bench.edited("three.cpp", "three\n").info.reason == "kernels/three.cpp added"
    (bench.sources / "two/two.cpp").unlink()
    assert "two" not in text_of(bench.load())
    assert bench.counts == ["link"]


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("torch_version", "9.9", "torch changed from {} to 9.9"),
        ("python_abi", ".cpython-399.so", "the Python ABI changed from {} to .cpython-399.so"),
        ("environment", (("CPATH", "/x"),), "the compile environment changed from nothing to CPA"),
    ],
)
def test_other_tools_build_anew(bench, monkeypatch, entry, value, words):
    monkeypatch.delenv("LIBRARY_PATH", raising=False)
    bench.first()
    tools = jit.detect()
    monkeypatch.setattr(request, "detect", lambda: tools._replace(**{entry: value}))
    assert bench.load().info.reason.startswith(words.format(getattr(tools, entry)))
    assert bench.counts == ALL


def test_other_flags_build_anew(bench):
    bench.first(cflags=("-O3", "-DA"))
    build = bench.first(cflags=("-O0", "-DA"))
    assert build.info.reason == "the C++ flags changed from -O3 to -O0"


def test_a_long_reason_says_how_much_it_leaves_out(bench, capsys):
    bench.load()
    for name in ("three", "four", "five", "six", "seven"):
        bench.write(f"{name}.cpp", name)
    first = "kernels/five.cpp added, kernels/four.cpp added, kernels/seven.cpp added"
    told = f"{first}, kernels/six.cpp added, kernels/three.cpp added"
    assert bench.load().info.reason == told
    assert f": {first} and 2 more\n" in capsys.readouterr().err


def test_two_sources_of_one_name_and_one_with_a_blank_in_it(bench):
    bench.write("one/two.cpp", "another two\n")
    bench.write("a b.cpp", "blank\n")
    assert text_of(bench.load()) == "blank\nshared header\none\nanother two\ntwo"
    assert "compile a b.cpp" in bench.counts
    bench.write("one/two.cpp", "an edited two\n")
    assert text_of(bench.load()) == "blank\nshared header\none\nan edited two\ntwo"
    assert bench.counts == ["compile two.cpp", "link"]


def test_inspect_builds_nothing_and_compiling_can_be_forbidden(bench, monkeypatch):
    with monkeypatch.context() as here:
        here.setenv("LLTM_JIT_DISABLE_JIT", "1")
        with pytest.raises(jit.ToolchainError, match="LLTM_JIT_DISABLE_JIT"):
            bench.load()
    assert jit.inspect(bench.spec()) is None
    assert engine.find(bench.spec()) is None
    assert bench.counts == []
    info = bench.load().info
    assert jit.inspect(bench.spec()) == info._replace(cached=True)
