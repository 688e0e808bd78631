"""Many processes, threads and ranks that want one build."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_bench import ALL, HERE, alive, compiler_pid, finish, wait_for

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import importing
from lltm_jit.jit.store import cache, lock
from lltm_jit.jit.user.progress import Reporter

CROWD = 5


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
    assert {"which has been building since" in line for line in named} == {True}


def test_a_process_that_is_spawned_during_a_build(bench, same_torch, tmp_path, monkeypatch, capfd):
    """It waits for the build of its parent, of which it has inherited nothing."""
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\none\n")
    builder = threading.Thread(target=bench.load)
    builder.start()
    compiler_pid(gate)
    monkeypatch.setattr(sys, "argv", ["load_once.py", str(bench.sources)])
    arguments = (str(HERE / "load_once.py"), None, "__main__")
    child = get_context("spawn").Process(target=runpy.run_path, args=arguments)
    child.start()
    said = ""
    while "waiting for process" not in said and child.is_alive():
        time.sleep(0.1)
        said += capfd.readouterr().err
    assert f"waiting for process {os.getpid()}" in said
    Path(f"{gate}.go").touch()
    child.join(60)
    builder.join(60)
    assert child.exitcode == 0
    assert json.loads(capfd.readouterr().out)["cached"]
    assert bench.counts == ALL


def test_crowd_on_a_broken_source_builds_once(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(bench.directory)
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n//! error no such thing\n")
    crowd = [bench.start() for _ in range(CROWD)]
    for process in crowd:
        process.stderr.readline()  # it builds, or waits for who does
    Path(f"{gate}.go").touch()
    results = [finish(process) for process in crowd]
    assert bench.counts.count("compile one.cpp") == 1
    assert {result["error"] for result in results} == {"BuildError"}
    assert len({result["message"] for result in results}) == 1
    assert results[0]["message"].startswith("error: no such thing\n  --> kernels/one/one.cpp:2:5")
    bench.run()  # one that starts later tries again
    assert bench.counts.count("compile one.cpp") == 1


FORKS = """
import os, pathlib, signal, sys, threading, time
import load_once
from lltm_jit import jit

directory = sys.argv[1]
spec = jit.BuildSpec.from_directory("_C", pathlib.Path(directory), jit.detect())
threading.Thread(target=jit.load, args=[spec], daemon=True).start()
sys.stdin.readline()  # the compiler runs
parent = os.getpid()
if os.fork():
    os.kill(parent, signal.SIGKILL)
while os.getppid() == parent:
    time.sleep(0.01)
load_once.main(directory)
"""


def test_a_forked_child_does_not_wait_for_a_lock_that_it_inherited(bench, tmp_path):
    """Its parent was building in a thread, and is gone."""
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\none\n")
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(bench.sources)],
        env={**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    compiler = compiler_pid(gate)
    process.stdin.write("\n")
    process.stdin.flush()
    wait_for(lambda: not alive(compiler))
    Path(f"{gate}.go").touch()
    try:
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert json.loads(out)["text"].endswith("one\ntwo")


def test_a_forked_process_keeps_no_lock_that_was_tried(bench):
    def is_free() -> bool:
        with lock.try_lock("name") as descriptor:
            return descriptor is not None

    cache.make_builds_directory()
    with lock.try_lock("name"):
        assert not is_free()
        forked = os.fork()
        if forked == 0:
            time.sleep(600)
            os._exit(0)
    try:
        wait_for(is_free)
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)


def test_a_lock_is_free_though_its_owner_cannot_be_removed(bench):
    key = "ab" * 10
    with lock.build_lock(key, Reporter()):
        owner = lock.file_of(lock.name_of(key)).with_suffix(".owner")
        owner.unlink()
        owner.mkdir()  # which is not removed like a file, as no file is where a disk fails
    owner.rmdir()
    with lock.try_lock(lock.name_of(key)) as descriptor:
        assert descriptor is not None


def test_a_lock_that_a_stranger_holds_is_told(bench, monkeypatch, capsys):
    monkeypatch.setattr(lock, "_NOBODY", 0.3)
    key = jit.request.fingerprint.Request.of(bench.spec(), jit.detect()).key
    file = lock.file_of(lock.name_of(key))
    cache.make_builds_directory()
    file.touch()
    with file.open() as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        with pytest.raises(jit.CacheError, match=f"{file} is locked by a program that builds noth"):
            bench.load()
    assert "waiting for another process that is building" in capsys.readouterr().err
    assert bench.counts == []
    bench.load()


@pytest.mark.parametrize("reaped", [True, False])
def test_a_builder_that_was_killed_is_not_waited_for(bench, monkeypatch, tmp_path, reaped):
    monkeypatch.setattr(lock, "_NOBODY", 0.3)
    program = tmp_path / ") R (sleep"  # what a name may look like in /proc
    shutil.copy(shutil.which("sleep"), program)
    killed = subprocess.Popen([program, "600"])
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
    key = jit.request.fingerprint.Request.of(bench.spec(), jit.detect()).key
    file = lock.file_of(lock.name_of(key))
    cache.make_builds_directory()
    told = {"pid": killed.pid, "host": platform.node(), "space": lock._space(), "since": 0}
    file.with_suffix(".owner").write_text(json.dumps(told))
    with file.open("w") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        with pytest.raises(jit.CacheError, match="is locked by a program that builds nothing"):
            bench.load()
    bench.load()
    killed.wait()


def test_a_file_system_without_locks_is_told(bench, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(
        jit.CacheError, match="not support locks; set TORCH_EXTENSIONS_DIR to a dir"
    ):
        bench.load()
    assert bench.counts == []


def test_a_cache_that_is_removed_while_a_builder_waits(bench, capsys):
    key = jit.request.fingerprint.Request.of(bench.spec(), jit.detect()).key
    cache.make_builds_directory()
    waiting = threading.Thread(target=bench.load)
    with lock.try_lock(lock.name_of(key)):
        waiting.start()
        wait_for(lambda: "waiting for" in capsys.readouterr().err)
        shutil.rmtree(bench.builds)
        waiting.join(30)
    assert bench.counts == ALL


def test_builds_of_one_name_wait_in_words(bench, tmp_path, capsys):
    gate = tmp_path / "gate"
    texts = [f"PyInit__C {number}\n//! wait {gate}{number}\n" for number in range(2)]
    threads = [threading.Thread(target=torch_api.load_inline, args=("_C", text)) for text in texts]
    threads[0].start()
    wait_for(Path(f"{gate}0").exists)
    threads[1].start()
    wait_for(lambda: "waiting for process" in capsys.readouterr().err)
    for number in range(2):
        Path(f"{gate}{number}.go").touch()
    for thread in threads:
        thread.join()
    assert bench.counts == ["compile main.cpp", "compile main.cpp", "link", "link"]


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
    thread_lock = importing.thread_lock

    def ask(key):
        asked.append(key)
        return thread_lock(key)

    monkeypatch.setattr(importing, "thread_lock", ask)

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


def test_ranks_build_once_and_only_the_first_speaks(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    others = [bench.start(LOCAL_RANK=str(rank)) for rank in range(1, 4)]
    compiler_pid(gate)
    first = bench.start(LOCAL_RANK="0")  # comes last
    assert "waiting for process" in first.stderr.readline()
    assert first.stderr.readline() == "lltm_jit: [1/3] two.cpp\n"
    Path(f"{gate}.go").touch()
    results = [finish(process) for process in (first, *others)]
    assert bench.counts == ALL
    assert len({result["key"] for result in results}) == 1
    assert [result["said"] for result in results[1:]] == ["", "", ""]
    assert sorted(result["cached"] for result in results) == [False, True, True, True]


def test_a_rank_that_is_alone_builds_at_once(bench, monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    clock = SimpleNamespace(
        time=time.time,
        monotonic=time.monotonic,
        sleep=lambda seconds: pytest.fail(f"slept {seconds}"),
    )
    monkeypatch.setattr(lock, "time", clock)
    assert not bench.load().info.cached
    assert capsys.readouterr().err == ""
