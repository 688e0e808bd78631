"""Builders and workers that are killed at every moment: all in real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from engine_bench import ALL, alive, compiler_pid, finish, slow, wait_for

from lltm_jit.jit.compile import worker


def assert_next_one_builds(bench) -> None:
    result = bench.run()
    assert result["text"] == "shared header\none\ntwo"
    assert not list(bench.builds.glob("tmp-*"))


@pytest.mark.parametrize("more", ["", "all of torch"])
def test_killed_before_ninja(bench, tmp_path, monkeypatch, more):
    monkeypatch.setenv("FAKE_TORCH_MORE", more)
    gate = tmp_path / "gate"
    process = bench.start(FAKE_TORCH_WAIT=str(gate))
    wait_for(gate.exists)
    process.kill()
    process.communicate()
    assert bench.counts == []
    assert_next_one_builds(bench)
    assert bench.counts == ALL


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
def test_ended_inside_the_compiler(bench, tmp_path, number, compiler):
    gate = tmp_path / "gate"
    source = bench.write("one/one.cpp", f"{compiler}//! wait {gate}\n")
    (tmp_path / "temporary").mkdir()
    process = bench.start(TMPDIR=str(tmp_path / "temporary"))
    pid = compiler_pid(gate)
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_for(lambda: not alive(pid))
    assert list((tmp_path / "temporary").iterdir()) == []
    if number == signal.SIGINT:  # ended in order: nothing stays
        assert not list(bench.builds.glob("tmp-*"))
    source.write_text('#include "core/shared.h"\none\n')
    assert_next_one_builds(bench)


def test_what_a_worker_says_is_read_to_its_end_and_closed(bench, monkeypatch):
    workers = []
    start = subprocess.Popen

    def note(*arguments, **options):
        workers.append(start(*arguments, **options))
        return workers[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    bench.load()
    outputs = [each.stdout for each in workers if each.stdin and each.stdout]
    assert outputs
    wait_for(lambda: all(output.closed for output in outputs))


@pytest.mark.parametrize("moment", ["before rename", "after rename"])
def test_killed_while_publishing(bench, moment):
    process = bench.start(KILL=moment)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert bench.counts == ALL
    assert_next_one_builds(bench)
    assert bench.counts == ALL


@pytest.mark.parametrize("name", ["worker.py", "ninja"])
def test_worker_killed_is_an_error_and_not_a_hang(bench, tmp_path, name):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    process = bench.start()
    pid = compiler_pid(gate)
    os.kill(parent_named(pid, name), signal.SIGKILL)
    result = finish(process)
    assert result["error"] == "BuildError"
    wait_for(lambda: not alive(pid))


def parent_named(pid: int, name: str) -> int:
    while name not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


def test_cache_cleared_while_a_build_fails(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n//! error wrong\n")
    process = bench.start()
    compiler_pid(gate)
    shutil.rmtree(bench.builds / "failed")
    Path(f"{gate}.go").touch()
    assert finish(process)["message"].startswith("error: wrong\n")


def test_a_compiler_that_reads_its_input_finds_none(tmp_path):
    """And does not wait for what the builder has to say."""
    command = [sys.executable, worker.__file__]
    process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE)
    reader = tmp_path / "reader"
    reader.write_text("#!/bin/sh\nexec cat\n")
    reader.chmod(0o755)
    request = {"ninja": str(reader), "build_file": "x", "product": "y", "sys_path": []}
    request["directory"] = str(tmp_path)
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    assert process.wait(timeout=30) == 0
    process.communicate()


@pytest.mark.parametrize("entry", [Path("somewhere"), None])
def test_an_odd_entry_of_the_path(bench, entry):
    sys.path.append(entry)  # a list of the bench
    assert bench.load().info.compiled == 2


def test_a_process_of_any_name_is_found():
    rename = "open('/proc/self/comm', 'wb').write(b'\\xff) Z 1'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", rename], stdin=PIPE, stdout=PIPE)
    process.stdout.readline()
    assert process.pid in worker.session(os.getsid(0))
    process.communicate(b"\n")
    assert process.pid not in worker.session(os.getsid(0))


def test_leftovers_of_another_build_are_removed(bench):
    process = bench.start(KILL="before rename")
    process.communicate()
    assert list(bench.builds.glob("tmp-*"))
    for text in ("deux\n", "drei\n"):  # a build leaves what happens to share its lock to the next
        bench.write("two/two.cpp", text)
        bench.run()
    assert not list(bench.builds.glob("tmp-*"))
