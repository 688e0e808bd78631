"""Many processes, threads and ranks that want one build."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_bench import ALL, compiler_pid, finish, wait_for

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.compile import builder
from lltm_jit.jit.loading import importing
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache, lock

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


def test_a_crowd_hears_of_one_failure(bench, tmp_path):
    """Who waited for a build that fails compiles nothing; who comes later tries again."""
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n//! error nonsense\n")
    crowd = [bench.start() for _ in range(CROWD)]
    for process in crowd:  # all are here
        process.stderr.readline()
    Path(f"{gate}.go").touch()
    told = [finish(process)["message"].splitlines()[0] for process in crowd]
    assert told == ["error: nonsense"] * CROWD
    assert bench.counts.count("compile one.cpp") == 1
    with pytest.raises(jit.BuildError) as caught:
        bench.load()
    assert (caught.value.line, caught.value.message) == (2, "nonsense")
    assert "compile one.cpp" in bench.counts


def test_a_failure_before_an_edit_is_not_told_again(bench):
    bench.write("one/one.cpp", '//! error nonsense\n#include "core/shared.h"\n')
    with pytest.raises(jit.BuildError):
        bench.load()
    request = Request(bench.spec())
    assert builder.last_failure(request)[1]
    bench.write("core/shared.h", "another header\n")
    assert builder.last_failure(request)[1] is None


def test_a_forked_process_has_no_lock(bench):
    """Its parent was building in a thread, and was killed."""

    def is_free() -> bool:
        with lock.try_lock("name") as mine:
            return mine

    cache.make_builds_directory()
    told = bench.directory / "forked"
    if not (parent := os.fork()):
        with lock.try_lock("name"):
            if not (forked := os.fork()):
                time.sleep(600)
            told.write_text(str(forked))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        wait_for(is_free)
    finally:
        os.kill(int(told.read_text()), signal.SIGKILL)


def test_the_file_of_a_lock_names_its_holder(bench):
    cache.make_builds_directory()
    with lock.held("name", print):
        told = lock.file_of("name").read_text()
    who = f"process {os.getpid()} on {platform.node()}, which has been building since "
    assert told.startswith(who)
    assert lock.file_of("name").read_text() == ""
    lock.file_of("name").write_text("process 7 on elsewhere, which ...")
    assert lock._holder("name") == "process 7 on elsewhere, which ..."


@pytest.mark.parametrize("removed", [False, True])
def test_a_lock_that_a_stranger_holds_is_waited_for(bench, capsys, removed):
    """Unless the cache is removed, with the lock."""
    cache.make_builds_directory()
    loading = threading.Thread(target=bench.load)
    with lock.file_of(Request(bench.spec()).place).open("w") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        loading.start()
        wait_for(lambda: "waiting for another process that is build" in capsys.readouterr().err)
        if removed:
            shutil.rmtree(bench.builds)
            loading.join(30)
    loading.join(30)
    assert bench.counts == ALL


def test_a_file_system_without_locks_is_told(bench, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(
        jit.CacheError, match="not support locks; set TORCH_EXTENSIONS_DIR to a dir"
    ):
        bench.load()
    assert bench.counts == []


def test_a_descriptor_that_the_program_has_reused_is_its_own(bench, tmp_path):
    """A program that becomes a daemon closes all that is open."""
    cache.make_builds_directory()
    with (tmp_path / "file").open("w+") as theirs:
        theirs.write("text")
        theirs.flush()
        with lock.try_lock("name"):
            (descriptor,) = lock._open
            os.dup2(theirs.fileno(), descriptor)
    assert os.fstat(descriptor).st_size == 4
    os.close(descriptor)


def test_a_lock_that_was_removed_is_none(bench, monkeypatch):
    """Between its opening and its locking: who comes later would lock another file."""
    cache.make_builds_directory()
    flock = fcntl.flock

    def remove_and_lock(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.file_of("abc").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    taken = [lock.take("abc") for _ in range(3)]
    assert [descriptor is None for descriptor in taken] == [True, False, True]
    lock.close(taken[1])


def test_equal_names_with_other_texts_build_side_by_side(bench, tmp_path):
    gate = tmp_path / "gate"
    texts = [f"PyInit__C {number}\n//! wait {gate}{number}\n" for number in range(2)]
    threads = [threading.Thread(target=torch_api.load_inline, args=("_C", text)) for text in texts]
    for thread in threads:
        thread.start()
    wait_for(lambda: all(Path(f"{gate}{number}").exists() for number in range(2)))
    for number in range(2):
        Path(f"{gate}{number}.go").touch()
    for thread in threads:
        thread.join()
    assert bench.counts == ["compile main.cpp", "compile main.cpp", "link", "link"]


def test_threads_build_once(bench, tmp_path, monkeypatch):
    gate, asked, thread_lock = tmp_path / "gate", [], importing.thread_lock
    bench.write("one/one.cpp", f"//! wait {gate}\none\n")
    monkeypatch.setattr(importing, "thread_lock", lambda key: asked.append(key) or thread_lock(key))
    with ThreadPoolExecutor(CROWD) as pool:
        loads = [pool.submit(bench.load) for _ in range(CROWD)]
        wait_for(lambda: len(asked) == CROWD)
        Path(f"{gate}.go").touch()
    assert bench.counts == ALL
    assert len({load.result().module for load in loads}) == 1


def test_ranks_build_once_and_only_the_first_speaks(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    others = [bench.start(LOCAL_RANK=str(rank)) for rank in range(1, 4)]
    compiler_pid(gate)
    first = bench.start(LOCAL_RANK="0")  # comes last
    assert "waiting for process" in first.stderr.readline()
    Path(f"{gate}.go").touch()
    results = [finish(process) for process in (first, *others)]
    assert bench.counts == ALL
    assert len({result["key"] for result in results}) == 1
    assert [result["said"] for result in results[1:]] == ["", "", ""]
    assert sorted(result["cached"] for result in results) == [False, True, True, True]
