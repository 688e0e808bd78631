"""Builds that fail: what is told of them, and what stays for the next one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from engine_bench import finish, text_of

from lltm_jit import jit
from lltm_jit.jit.compile import files_read
from lltm_jit.jit.store import checked_json, lock, publish


def test_failed_build_raises_the_first_error_and_the_next_try_builds(bench, monkeypatch):
    monkeypatch.chdir(bench.directory)
    path = bench.write("one/one.cpp", "//! error 'nonsense' was not declared\n")
    for _ in range(2):
        with pytest.raises(jit.BuildError) as caught:
            bench.load()
        assert "compile one.cpp" in bench.counts
        lines = str(caught.value).splitlines()
        assert lines[:5] == [
            "error: 'nonsense' was not declared",
            "  --> kernels/one/one.cpp:1:5",
            "  |",
            "1 | //! error 'nonsense' was not declared",
            "  |     ^",
        ]
        log = lines[5].rpartition("full log: ")[2]
        assert "'nonsense' was not declared" in Path(log).read_text()
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, RuntimeError)  # as torch's own
    assert "Error building extension '_C'" in str(caught.value)
    assert not list(bench.builds.glob("tmp-*"))
    path.write_text("one\n")
    assert "one" in text_of(bench.load())


def test_what_a_failed_build_finished_is_not_compiled_again(bench):
    bench.write("two/two.cpp", "//! error this is wrong\n")
    with pytest.raises(jit.BuildError, match="this is wrong"):
        bench.load()
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    build = bench.edited("two/two.cpp", "two\n")
    assert text_of(build) == "shared header\none\ntwo"
    assert not [entry for entry in (bench.builds / "failed").iterdir() if entry.is_dir()]


def test_failed_builds_leave_the_objects_of_the_last_one(bench):
    for text in ("wrong", "still wrong"):
        bench.write("two/two.cpp", f"//! error {text}\n")
        with pytest.raises(jit.BuildError, match=text):
            bench.load()
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "compile two.cpp"]
    (kept,) = (entry for entry in (bench.builds / "failed").iterdir() if entry.is_dir())
    assert (kept / "one.o").exists()
    assert not list(bench.builds.glob("tmp-*"))


@pytest.mark.parametrize("left", ["", "# ninja log v7\n0\t5\t17"])
def test_a_log_of_ninja_that_a_full_disk_cut_off(bench, left):
    """What it has lost are times; no build stumbles over it."""
    bench.write("two/two.cpp", "//! error this is wrong\n")
    with pytest.raises(jit.BuildError, match="this is wrong"):
        bench.load()
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    (log,) = (bench.builds / "failed").glob("*/.ninja_log")
    log.write_text(left)
    assert files_read.finished(log.parent) == {}
    assert text_of(bench.edited("two/two.cpp", "two\n")) == "shared header\none\ntwo"


def test_error_of_the_compiler_stands_when_nothing_can_be_kept(bench, monkeypatch):
    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(publish, "keep_objects", full)
    bench.write("two/two.cpp", "//! error this is wrong\n")
    with pytest.raises(jit.BuildError, match="this is wrong"):
        bench.load()


def test_a_build_file_that_may_be_why_a_build_failed_is_not_used_again(bench):
    bench.write("two/two.cpp", "//! error this is wrong\n")
    with pytest.raises(jit.BuildError):
        bench.load()
    (kept,) = (bench.builds / "failed").glob("*/build.ninja")
    kept.write_bytes(b"\xff is no build file\n")
    bench.write("two/two.cpp", "two\n")
    assert text_of(bench.load()) == "shared header\none\ntwo"


@pytest.mark.parametrize("change", [{"schema": 0}, {"created": 1e9}])
def test_what_failed_builds_kept_is_removed_in_the_end(bench, change):
    bench.write("two/two.cpp", "//! error this is wrong\n")
    with pytest.raises(jit.BuildError):
        bench.load(cflags=("-DONE",))
    (record,) = (bench.builds / "failed").glob("*/ok.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), **change}))
    bench.write("two/two.cpp", "two\n")
    bench.load()
    assert not record.parent.exists()
    assert not list(bench.builds.glob("tmp-*"))


def test_a_failure_is_told_to_those_who_waited_for_it(bench):
    key, now = "0" * 20, time.time()
    jit.loading.engine.cache.make_builds_directory()
    header = bench.write("core/broken.h", "wrong\n")
    lock.record_failure(key, "new", [str(header)])
    with pytest.raises(jit.BuildError, match="new"):
        lock.raise_failure_of_others(key, now - 1)
    lock.raise_failure_of_others(key, time.time() + 1)  # its cause may have been mended
    header.write_text("right\n")
    lock.raise_failure_of_others(key, now - 1)  # as it was here
    file = bench.builds / "failed" / f"{key}.json"
    told = checked_json.read(file)
    checked_json.write(file, {**told, "files": {}, "time": now + 3600})  # by another clock
    lock.raise_failure_of_others(key, now)


def test_a_process_that_started_before_a_failure_and_asks_after_it_builds(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", "//! error missing\n")
    late = bench.start(ASK_AFTER=str(gate))
    assert bench.run()["error"] == "BuildError"
    bench.write_compiler(deaf=True)  # it is mended, and nothing that the key has
    gate.touch()
    assert not finish(late)["cached"]
