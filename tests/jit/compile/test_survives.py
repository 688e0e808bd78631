"""Builds that end before their time: killed at any moment, interrupted, or not wanted any more."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE

import pytest
from harness import ALL, TEXT, alive, finish, slow, wait_for
from small_files import script

from lltm_jit.jit import BuildError, Spec
from lltm_jit.jit.compile import guard
from lltm_jit.jit.loading import engine
from lltm_jit.jit.user.errors import Cancelled, cancelled_by

STUBBORN = "//! stubborn\n"


def assert_next_one_builds(bench) -> None:
    bench.write("one/one.cpp", '#include "core/shared.h"\none\n')
    assert bench.run()["text"] == TEXT


@pytest.mark.parametrize(
    ("number", "compiler"),
    [
        (signal.SIGKILL, ""),
        slow(signal.SIGKILL, STUBBORN),
        slow(signal.SIGTERM, ""),
        (signal.SIGTERM, STUBBORN),
        (signal.SIGINT, ""),
        slow(signal.SIGINT, STUBBORN),
    ],
)
def test_no_compiler_outlives_its_program(bench, gate, tmp_path, number, compiler):
    bench.write("one/one.cpp", compiler + gate.order)
    (tmp_path / "temporary").mkdir()
    process = bench.start(TMPDIR=str(tmp_path / "temporary"))
    pid = gate.reached()
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_for(lambda: not alive(pid))
    assert list((tmp_path / "temporary").iterdir()) == []
    assert_next_one_builds(bench)


@pytest.mark.parametrize(
    ("how", "compiler"),
    [
        (KeyboardInterrupt, ""),
        slow(KeyboardInterrupt, STUBBORN),
        (Cancelled, ""),
        (Cancelled, STUBBORN),
    ],
)
def test_no_compiler_outlives_a_build_that_is_cancelled(bench, gate, how, compiler):
    """By Ctrl-C, or by its caller."""
    source, unwanted = bench.write("slow/slow.cpp", compiler + gate.order), threading.Event()
    interrupt = how is KeyboardInterrupt
    gate.then(lambda: os.kill(os.getpid(), signal.SIGINT) if interrupt else unwanted.set())
    with cancelled_by(unwanted), pytest.raises(how):
        engine.build_all([Spec("_C", (str(source),))])
    assert not alive(gate.reached())


def test_an_error_cancels_other_builds(bench, gate):
    """And nothing goes on beyond the call."""
    slow = bench.write("slow/slow.cpp", gate.order)
    wrong = bench.write("wrong/wrong.cpp", f"//! after {gate.path}\n//! error wrong\n")
    before = {*threading.enumerate()}  # some may be those of other tests, which end
    began = time.monotonic()
    with pytest.raises(BuildError, match="error: wrong"):
        engine.build_all([Spec("_C", (str(path.parent),)) for path in (slow, wrong)])
    assert time.monotonic() - began < 100  # the compiler at the gate waits for minutes
    assert not alive(gate.reached())
    assert {*threading.enumerate()} <= before


def test_the_first_error_ends_the_other_compilers_and_what_was_finished_stays(
    bench, gate, monkeypatch
):
    monkeypatch.setenv("MAX_JOBS", "3")
    bench.write("one/one.cpp", gate.order)
    bench.write("two/two.cpp", f"//! after {gate.path}\n//! error x\n")
    bench.write("three/three.cpp", "three\n")
    began = time.monotonic()
    bench.fails("error: x")
    assert time.monotonic() - began < 100
    assert not alive(gate.reached())
    assert "link" not in bench.counts
    for name in ("one", "two"):
        bench.write(f"{name}/{name}.cpp", f"{name}\n")
    bench.first()


@pytest.mark.parametrize(
    "moment", ["before _C.so", "after _C.so", "before ok.json", "after ok.json"]
)
def test_killed_while_publishing(bench, moment):
    process = bench.start(KILL=moment)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert bench.counts == ALL
    assert_next_one_builds(bench)
    assert bench.counts == ([] if moment == "after ok.json" else ["link"])


@pytest.mark.parametrize("name", ["guard.py", "ninja"])
def test_a_guard_or_a_ninja_killed_is_an_error_and_not_a_hang(bench, gate, name):
    bench.write("one/one.cpp", gate.order)
    process = bench.start()
    pid = parent = gate.reached()
    while name not in Path(f"/proc/{parent}/cmdline").read_text():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent > 1
    os.kill(parent, signal.SIGKILL)
    assert finish(process)["error"] == "BuildError"
    wait_for(lambda: not alive(pid))


@pytest.mark.parametrize("removed", ["objects", "locks", "work"])
def test_cache_cleared_while_a_build_fails(bench, gate, removed):
    bench.write("one/one.cpp", f"{gate.order}//! error wrong\n")
    process = bench.start()
    gate.reached()
    gone = (bench.builds / removed).rename(bench.directory / "gone")
    shutil.rmtree(gone, ignore_errors=True)  # the other file's compiler may still write there
    gate.open()
    assert finish(process)["error"] in ("BuildError", "CacheError")
    assert_next_one_builds(bench)


def test_a_compiler_that_reads_its_input_finds_none(bench, monkeypatch):
    """And does not wait for it."""
    reading = script(bench.directory / "reading", f'cat\nexec {os.environ["CXX"]} "$@"')
    monkeypatch.setenv("CXX", str(reading))
    bench.first()


def test_a_guard_hears_the_end_of_a_program_that_is_deaf_to_signals():
    """Such as one that `nohup` has started: its processes inherit this."""
    program = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM})\n"
        "words = [sys.executable, sys.argv[1], str(os.getpid())]\n"
        "words += ['sh', '-c', 'echo $$; sleep 100']\n"
        "subprocess.Popen(words, start_new_session=True)\ntime.sleep(100)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, guard.__file__], stdout=PIPE)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    wait_for(lambda: not alive(pid))
    process.stdout.close()


def test_a_guard_whose_program_is_gone_runs_nothing(tmp_path):
    words = [sys.executable, guard.__file__, str(os.getppid()), "touch", str(tmp_path / "ran")]
    assert subprocess.run(words, start_new_session=True).returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_process_of_any_name_is_found():
    rename = "open('/proc/self/comm', 'wb').write(b'\\xff) Z 1'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", rename], stdin=PIPE, stdout=PIPE)
    process.stdout.readline()
    assert process.pid in guard._session(os.getsid(0))
    process.communicate(b"\n")
    assert process.pid not in guard._session(os.getsid(0))


def test_a_process_that_forked_during_a_build_does_not_keep_its_guard_alive(bench, gate):
    """The kernel tells the guard that the thread of the build is gone."""
    bench.write("one/one.cpp", gate.order)
    process = bench.start("die", bench.sources, gate.path)
    pid = gate.reached()
    process.wait(60)
    wait_for(lambda: not alive(pid))
