"""Many processes, threads and ranks that want one build, and the locks that keep them apart."""

import errno
import fcntl
import os
import platform
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from harness import ALL, Gate, finish, in_threads, wait_for

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache, lock

CROWD = 5


@pytest.fixture
def crowd(bench, gate):
    """Load in many processes while a compiler waits; the first lines that they say, and results."""

    def load(order: str) -> tuple[list[str], list[dict]]:
        bench.write("one/one.cpp", f"{gate.order}{order}\n")
        processes = [bench.start() for _ in range(CROWD)]
        firsts = [process.stderr.readline() for process in processes]  # all are here
        gate.open()
        return firsts, [finish(process) for process in processes]

    return load


def test_crowd_builds_once(bench, crowd):
    firsts, results = crowd("one")
    assert bench.counts == ALL
    assert [result["cached"] for result in results].count(False) == 1
    assert sum(line.startswith("lltm_jit: waiting for ") for line in firsts) == CROWD - 1
    named = [line for line in firsts if "waiting for process" in line]
    assert {"which has been building since" in line for line in named} == {True}


def test_a_crowd_hears_of_one_failure(bench, crowd):
    """Who waited for a build that fails compiles nothing; who comes later tries again."""
    _, results = crowd("//! error nonsense")
    told = [result["message"].splitlines()[0] for result in results]
    assert told == ["error: nonsense"] * CROWD
    assert bench.counts.count("compile one.cpp") == 1
    error = bench.fails("nonsense")
    assert (error.line, error.message) == (2, "nonsense")
    assert "compile one.cpp" in bench.counts


@pytest.mark.parametrize("name", ["two/two.cpp", "core/shared.h"])
def test_a_failure_of_what_was_edited_meanwhile_is_not_told_to_who_waited(bench, gate, name):
    """Who waited compiles the new text, which may be right."""
    bench.write("one/one.cpp", f'{gate.order}//! error wrong\n#include "core/shared.h"\n')
    both = bench.waiting(gate)
    bench.write(name, "edited\n")
    gate.open()
    for process in both:
        finish(process)
    assert bench.counts.count("compile one.cpp") == 2


def test_who_waited_for_a_compiler_that_was_killed_tries_again(bench, gate):
    bench.write("one/one.cpp", gate.order)
    both = bench.waiting(gate)
    os.kill(gate.reached(), signal.SIGKILL)
    gate.open()
    assert [finish(process).get("error") for process in both] == ["BuildError", None]


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
    refused = OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=refused))
    told = "not support locks; set TORCH_EXTENSIONS_DIR to a dir"
    with pytest.raises(jit.CacheError, match=told):
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
    gates = [Gate(tmp_path / f"gate{number}") for number in range(2)]

    def load(gate: Gate) -> None:
        gate.then(lambda: (gates[0].reached(), gates[1].reached(), gate.open()))
        torch_api.load_inline("_C", f"PyInit__C\n{gate.order}")

    in_threads(*(lambda gate=gate: load(gate) for gate in gates))
    assert bench.counts == ["compile main.cpp", "compile main.cpp", "link", "link"]


def test_threads_build_once(bench, gate, monkeypatch):
    asked, thread_lock = [], engine.thread_lock
    bench.write("one/one.cpp", gate.order)
    monkeypatch.setattr(engine, "thread_lock", lambda key: asked.append(key) or thread_lock(key))
    with ThreadPoolExecutor(CROWD) as pool:
        loads = [pool.submit(bench.load) for _ in range(CROWD)]
        wait_for(lambda: len(asked) == CROWD)
        gate.open()
    assert bench.counts == ALL
    assert len({load.result().module for load in loads}) == 1


def test_ranks_build_once_and_only_the_first_speaks(bench, gate):
    bench.write("one/one.cpp", gate.order)
    others = [bench.start(LOCAL_RANK=str(rank)) for rank in range(1, 4)]
    gate.reached()
    first = bench.start(LOCAL_RANK="0")  # comes last
    assert "waiting for process" in first.stderr.readline()
    gate.open()
    results = [finish(process) for process in (first, *others)]
    assert bench.counts == ALL
    assert len({result["key"] for result in results}) == 1
    assert [result["said"] for result in results[1:]] == ["", "", ""]
    assert sorted(result["cached"] for result in results) == [False, True, True, True]
