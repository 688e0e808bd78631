"""From sources to a loaded module, with compiler runs counted."""

from __future__ import annotations

import os
import time

import pytest
from engine_bench import ALL, slow, text_of

from lltm_jit import jit


@pytest.mark.parametrize("torch", [{}, slow({"REAL_TORCH": "1"})], ids=["in small", "real"])
def test_cold_build_then_cached(bench, torch):
    first = bench.run(**torch)
    assert bench.counts == ALL
    assert (first["cached"], first["reason"], first["compiled"]) == (False, "first build", 2)
    assert first["text"] == "shared header\none\ntwo"

    second = bench.run(**torch)
    assert bench.counts == []
    assert second["cached"]
    assert second["said"] == ""
    assert second["imported"] == []
    assert second["processes"] == 0


def test_same_content_gives_the_same_module(bench):
    assert bench.load().module is bench.load().module
    assert bench.counts == ALL


def test_edit_compiles_one_file_and_back_again_loads_the_first(bench):
    first = bench.first()
    second = bench.edited("two/two.cpp", "deux\n")
    assert (second.info.compiled, second.info.reused) == (1, 1)
    assert second.info.reason == "kernels/two/two.cpp changed"
    assert text_of(second).endswith("deux")
    assert second.module is not first.module
    bench.write("two/two.cpp", "two\n")
    assert bench.load().module is first.module
    assert bench.counts == []


def test_edited_header_compiles_what_includes_it(bench):
    bench.first()
    build = bench.edited("core/shared.h", "another header\n", "one.cpp")
    assert build.info.reason == "kernels/core/shared.h changed"
    assert text_of(build).startswith("another header")


def test_source_that_another_includes_is_compiled_with_it(bench):
    bench.write("one/one.cpp", '#include "two/two.cpp"\none\n')
    bench.load()
    assert bench.counts == ["compile one.cpp", "link"]
    build = bench.edited("two/two.cpp", "deux\n", "one.cpp")
    assert text_of(build).startswith("deux")


def test_content_under_an_older_time_stamp_is_seen(bench):
    bench.first()
    path = bench.write("two/two.cpp", "deux\n")
    os.utime(path, (1e9, 1e9))
    assert text_of(bench.load()).endswith("deux")
    assert bench.counts == ["compile two.cpp", "link"]


def test_damaged_object_is_not_reused(bench):
    first = bench.first()
    (first.info.directory / "one.o").write_text("damaged")
    bench.write("two/two.cpp", "deux\n")
    assert text_of(bench.load()) == "shared header\none\ndeux"
    assert bench.counts == ALL


def test_touch_builds_nothing(bench):
    module = bench.first().module
    future = time.time() + 1000
    os.utime(bench.sources / "one/one.cpp", (future, future))
    assert bench.load().module is module
    assert bench.counts == []


def test_touched_files_are_not_compiled_with_an_edited_one(bench):
    bench.first()
    future = time.time() + 1000
    for name in ("one/one.cpp", "core/shared.h"):
        os.utime(bench.sources / name, (future, future))
    for text in ("deux\n", "drei\n"):
        bench.write("two/two.cpp", text)
        assert text_of(bench.load()).endswith(text.strip())
        assert bench.counts == ["compile two.cpp", "link"]


def test_edited_header_of_somebody_else_is_seen_when_a_file_is_compiled(bench):
    outside = bench.directory / "outside"
    outside.mkdir()
    (outside / "theirs.h").write_text("theirs\n")
    bench.write("one/one.cpp", '#include "theirs.h"\none\n')
    flags = {"cflags": (f"-I{outside}",)}
    bench.first(**flags)
    future = time.time() + 1000
    os.utime(bench.sources / "one/one.cpp", (future, future))
    (outside / "theirs.h").write_text("edited\n")
    os.utime(outside / "theirs.h", (future, future))
    bench.write("two/two.cpp", "deux\n")
    assert text_of(bench.load(**flags)) == "edited\none\ndeux"
    assert bench.counts == ALL


def test_added_and_removed_source(bench):
    bench.first()
    build = bench.edited("three.cpp", "three\n")
    assert build.info.reason == "kernels/three.cpp added"
    (bench.sources / "two/two.cpp").unlink()
    build = bench.load()
    assert bench.counts == ["link"]
    assert "two" not in text_of(build)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"torch_version": "9.9"},
            "torch changed from {torch_version} to 9.9",
        ),
        (
            {"python_abi": ".cpython-399.so"},
            "the Python ABI changed from {python_abi} to .cpython-399.so",
        ),
        (
            {"environment": (("CPATH", "/x"),)},
            "the compile environment changed from nothing to CPATH=/x",
        ),
    ],
)
def test_changed_toolchain_builds_anew(bench, change, reason):
    toolchain = jit.detect()._replace(environment=())
    jit.load(bench.spec(), toolchain)
    assert bench.counts == ALL
    build = jit.load(bench.spec(), toolchain._replace(**change))
    assert bench.counts == ALL
    assert build.info.reason == reason.format(**toolchain._asdict())


def test_changed_flag_builds_anew(bench):
    bench.load(cflags=("-O3", "-DA"))
    assert bench.counts == ALL
    build = bench.load(cflags=("-O0", "-DA"))
    assert bench.counts == ALL
    assert build.info.reason == "the C++ flags changed from -O3 to -O0"


def test_a_build_for_a_debugger_is_no_reason_for_another(bench):
    debug = {"cflags": ("-O0", "-g", "-DA")}
    assert bench.load(**debug).info.reason == "first build"
    assert bench.load(cflags=("-O3", "-DA")).info.reason == "first build"
    bench.write("two/two.cpp", "deux\n")
    for flags in (debug, {"cflags": ("-O3", "-DA")}):
        assert bench.load(**flags).info.reason == "kernels/two/two.cpp changed"


def test_a_long_reason_says_how_much_it_leaves_out(bench):
    bench.run()
    for name in ("three", "four", "five", "six", "seven"):
        bench.write(f"{name}.cpp", name)
    result = bench.run()
    first = "kernels/five.cpp added, kernels/four.cpp added, kernels/seven.cpp added"
    assert f": {first} and 2 more\n" in result["said"]
    assert result["reason"] == f"{first}, kernels/six.cpp added, kernels/three.cpp added"


def test_changed_compiler_builds_anew(bench):
    bench.first()
    bench.write_compiler("c++ (Fake) 2.0.0")
    build = bench.first()
    assert build.info.reason == "the compiler changed from c++ (Fake) 1.2.3 to c++ (Fake) 2.0.0"


def test_two_sources_of_one_name_and_one_with_a_blank_in_it(bench):
    bench.write("one/two.cpp", "another two\n")
    bench.write("a b.cpp", "blank\n")
    assert text_of(bench.load()) == "blank\nshared header\none\nanother two\ntwo"
    assert "compile a b.cpp" in bench.counts
    bench.write("one/two.cpp", "an edited two\n")
    assert text_of(bench.load()) == "blank\nshared header\none\nan edited two\ntwo"
    assert bench.counts == ["compile two.cpp", "link"]


def test_missing_compiler_says_what_to_install(bench, monkeypatch):
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(jit.ToolchainError, match=r"^no C\+\+ compiler was found; .*install g\+\+"):
        bench.load()


def test_compiling_can_be_forbidden(bench, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    with pytest.raises(jit.ToolchainError, match="LLTM_JIT_DISABLE_JIT"):
        bench.load()
    assert bench.counts == []


def test_inspect_builds_nothing(bench):
    toolchain = jit.detect()
    assert jit.inspect(bench.spec(), toolchain) is None
    assert bench.counts == []
    info = bench.load().info
    found = jit.inspect(bench.spec(), toolchain)
    assert found == info._replace(cached=True)
