"""Many processes, threads and ranks that want one build."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from engine_bench import ALL, finish, wait_for

from lltm_jit import jit
from lltm_jit.jit import lock

CROWD = 8


def test_crowd_builds_once(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\none\n")
    crowd = [bench.start() for _ in range(CROWD)]
    firsts = [process.stderr.readline() for process in crowd]  # all are here
    Path(f"{gate}.go").touch()
    results = [finish(process) for process in crowd]
    assert bench.counts == ALL
    assert [result["cached"] for result in results].count(False) == 1
    assert sum(line.startswith("lltm_jit: waiting for ") for line in firsts) == CROWD - 1
    named = [line for line in firsts if "waiting for process" in line]
    assert named
    assert all("which has been building since" in line for line in named)


def test_crowd_on_a_broken_source_builds_once(bench):
    bench.write("one/one.cpp", "//! sleep 2\n//! error no such thing\n")
    results = [finish(process) for process in [bench.start() for _ in range(CROWD)]]
    assert bench.counts.count("compile one.cpp") == 1
    assert {result["error"] for result in results} == {"BuildError"}
    assert len({result["message"] for result in results}) == 1
    assert results[0]["message"].startswith("error: no such thing\n  --> kernels/one/one.cpp:2:5")
    bench.run()  # one that starts later tries again
    assert bench.counts.count("compile one.cpp") == 1


def test_failure_of_long_ago_is_forgotten(bench):
    key = "0" * 20
    jit.engine.cache.make_builds_directory()
    file = bench.builds / "failed" / f"{key}.json"
    file.write_text(json.dumps({"message": "old", "time": time.time() - 61}))
    lock.raise_failure_of_others(key, time.time())
    file.write_text(json.dumps({"message": "by another clock", "time": time.time() + 3600}))
    lock.raise_failure_of_others(key, time.time())
    file.write_text(json.dumps({"message": "new", "time": time.time()}))
    with pytest.raises(jit.BuildError, match="new"):
        lock.raise_failure_of_others(key, time.time())
    lock.raise_failure_of_others(key, time.time())  # a second try in the same process builds


def test_threads_build_once(bench):
    builds = []
    threads = [threading.Thread(target=lambda: builds.append(bench.load())) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.counts == ALL
    assert len({id(build.module) for build in builds}) == 1
    assert len(builds) == CROWD


def test_threads_on_a_broken_source_build_once(bench, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n//! error no such thing\n")
    messages, asked = [], []
    thread_lock = lock.thread_lock

    def ask(key):
        asked.append(key)
        return thread_lock(key)

    monkeypatch.setattr(lock, "thread_lock", ask)

    def load():
        with pytest.raises(jit.BuildError) as caught:
            bench.load()
        messages.append(str(caught.value))

    threads = [threading.Thread(target=load) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(asked) == CROWD)
    Path(f"{gate}.go").touch()
    for thread in threads:
        thread.join()
    assert bench.counts.count("compile one.cpp") == 1
    assert len(messages) == CROWD
    assert len(set(messages)) == 1


def test_ranks_build_once_and_only_the_first_speaks(bench):
    bench.write("one/one.cpp", "//! sleep 1\n")
    others = [bench.start(LOCAL_RANK=str(rank), FIRST_IS_LATE="60") for rank in range(1, 4)]
    wait_for((bench.builds / "locks").exists)  # the first comes last
    first = bench.run(LOCAL_RANK="0")
    results = [finish(process) for process in others]
    assert bench.counts == ALL
    assert {result["key"] for result in results} == {first["key"]}
    assert [result["said"] for result in results] == ["", "", ""]
    assert [result["cached"] for result in results] == [True, True, True]
    assert "building for CPU" in first["said"]


def test_a_rank_that_is_alone_builds(bench):
    result = bench.run(LOCAL_RANK="1")
    assert not result["cached"]
    assert result["said"] == ""


def test_quiet(bench):
    assert bench.run(LLTM_JIT_QUIET="1")["said"] == ""
    assert bench.counts == ALL
