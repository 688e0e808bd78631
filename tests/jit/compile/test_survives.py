"""Builders and guards that are killed at every moment: all in real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pytest
from engine_bench import ALL, alive, compiler_pid, finish, slow, wait_for

from lltm_jit.jit.compile import guard
from lltm_jit.jit.loading import engine
from lltm_jit.jit.user import cancel


def assert_next_one_builds(bench) -> None:
    assert bench.run()["text"] == "shared header\none\ntwo"


@pytest.mark.parametrize(
    ("number", "compiler"),
    [
        (signal.SIGKILL, ""),
        slow(signal.SIGKILL, "//! stubborn\n"),
        slow(signal.SIGTERM, ""),
        (signal.SIGTERM, "//! stubborn\n"),
        (signal.SIGINT, ""),
        slow(signal.SIGINT, "//! stubborn\n"),
    ],
)
def test_no_compiler_outlives_its_program(bench, tmp_path, number, compiler):
    gate = tmp_path / "gate"
    source = bench.write("one/one.cpp", f"{compiler}//! wait {gate}\n")
    (tmp_path / "temporary").mkdir()
    process = bench.start(TMPDIR=str(tmp_path / "temporary"))
    pid = compiler_pid(gate)
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_for(lambda: not alive(pid))
    assert list((tmp_path / "temporary").iterdir()) == []
    source.write_text('#include "core/shared.h"\none\n')
    assert_next_one_builds(bench)


@pytest.mark.parametrize("compiler", ["", "//! stubborn\n"])
def test_no_compiler_outlives_a_cancelled_build(bench, tmp_path, compiler):
    gate, unwanted = tmp_path / "gate", threading.Event()
    bench.write("one/one.cpp", f"{compiler}//! wait {gate}\n")
    pids = []

    def cancel_there() -> None:
        pids.append(compiler_pid(gate))
        unwanted.set()

    threading.Thread(target=cancel_there).start()
    with cancel.cancelled_by(unwanted), pytest.raises(cancel.Cancelled):
        engine.build(bench.spec())
    assert not alive(*pids)


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
def test_a_guard_or_a_ninja_killed_is_an_error_and_not_a_hang(bench, tmp_path, name):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    process = bench.start()
    pid = compiler_pid(gate)
    os.kill(parent_named(pid, name), signal.SIGKILL)
    assert finish(process)["error"] == "BuildError"
    wait_for(lambda: not alive(pid))


def parent_named(pid: int, name: str) -> int:
    while name not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


@pytest.mark.parametrize("removed", ["objects", "locks", "work"])
def test_cache_cleared_while_a_build_fails(bench, tmp_path, removed):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n//! error wrong\n")
    process = bench.start()
    compiler_pid(gate)
    shutil.rmtree(bench.builds / removed)
    Path(f"{gate}.go").touch()
    assert finish(process)["error"] in ("BuildError", "CacheError")
    bench.write("one/one.cpp", '#include "core/shared.h"\none\n')
    assert_next_one_builds(bench)


def test_a_compiler_that_reads_its_input_finds_none():
    """And does not wait for what the builder has to say."""
    process = subprocess.Popen([sys.executable, guard.__file__, "cat"], stdin=PIPE, stdout=PIPE)
    assert process.wait(timeout=30) == 0
    process.communicate()


def test_a_process_of_any_name_is_found():
    rename = "open('/proc/self/comm', 'wb').write(b'\\xff) Z 1'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", rename], stdin=PIPE, stdout=PIPE)
    process.stdout.readline()
    assert process.pid in guard._session(os.getsid(0))
    process.communicate(b"\n")
    assert process.pid not in guard._session(os.getsid(0))


def test_a_process_that_forked_during_a_build_does_not_keep_its_guard_alive(bench, tmp_path):
    """It has the other end of the guard's pipe, too, and closes it."""
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    program = (
        "import os, threading, time\nfrom lltm_jit import jit\n"
        f"spec = jit.Spec('_C', ({str(bench.sources)!r},))\n"
        "threading.Thread(target=jit.load, args=(spec,), daemon=True).start()\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
        "if not os.fork(): time.sleep(60)\nos.kill(os.getpid(), 9)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "LLTM_JIT_AT_IMPORT": "0"}
    )
    pid = compiler_pid(gate)
    process.wait(60)
    wait_for(lambda: not alive(pid))
