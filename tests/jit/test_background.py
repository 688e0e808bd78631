"""A build that goes on while the program does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_bench import ALL, HERE, alive, compiler_pid, wait_for

from lltm_jit.jit.process import find_ninja

TEXT = "shared header\none\ntwo"


class Program:
    """background_once.py in a process of its own."""

    def __init__(self, bench, action, *directories, launcher=(), **environment):
        words = [
            str(HERE / "background_once.py"),
            action,
            *map(str, directories or [bench.sources]),
        ]
        self.process = subprocess.Popen(
            [sys.executable, *launcher, *words],
            env={**os.environ, **bench.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def end(self, status: int = 0) -> tuple[list[dict], str]:
        """What it printed, and what it said, once it has ended."""
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == status, err
        return [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def gate(bench, tmp_path) -> Path:
    """The second file's compiler waits here."""
    gate = tmp_path / "gate"
    bench.write("two/two.cpp", f"//! wait {gate}\ntwo\n")
    return gate


def test_progress_is_shown_to_those_who_wait(bench, gate):
    program = Program(bench, "wait")
    assert program.line() == {"started": True}
    compiler_pid(gate)
    Path(f"{gate}.go").touch()
    (results,), said = program.end()
    assert [result["cached"] for result in results["results"]] == [False]
    assert "building _C for CPU" in said
    assert "] link (" in said
    assert "ready in" in said
    assert bench.counts == ALL


def test_a_process_that_ends_finishes_its_build(bench, gate):
    program = Program(bench, "leave")
    assert program.line() == {"started": True}
    compiler_pid(gate)
    time.sleep(0.3)
    assert program.process.poll() is None
    Path(f"{gate}.go").touch()
    _, said = program.end()
    assert "lltm_jit: finishing the build of _C before the process ends\n" in said
    assert bench.run()["cached"] is True


def test_a_process_that_ends_says_that_its_build_failed(bench, gate):
    bench.write("two/two.cpp", f"//! wait {gate}\n//! error this is wrong\n")
    program = Program(bench, "leave")
    assert program.line() == {"started": True}
    compiler_pid(gate)
    assert "finishing the build of _C" in program.process.stderr.readline()
    Path(f"{gate}.go").touch()
    _, said = program.end()
    assert said.count("lltm_jit: the build of _C failed: error: this is wrong\n") == 1


def test_ctrl_c_while_a_process_finishes_its_build(bench, gate):
    program = Program(bench, "leave")
    pid = compiler_pid(gate)
    wait_for(lambda: "compile one.cpp" in Path(bench.environment["FAKE_COUNTS"]).read_text())
    time.sleep(0.5)
    program.process.send_signal(signal.SIGINT)
    program.end(-signal.SIGINT)
    assert_given_up(bench, gate, pid)


def test_a_wait_interrupted_in_a_notebook(bench, gate):
    program = Program(bench, "interrupted")
    assert program.line() == {"started": True}
    pid = compiler_pid(gate)
    time.sleep(0.5)
    program.process.send_signal(signal.SIGINT)
    assert program.line() == {"interrupted": True}
    wait_for(lambda: not alive(pid), 10)
    program.end()
    assert_given_up(bench, gate, pid)


def assert_given_up(bench, gate: Path, pid: int) -> None:
    """No compiler is left, and what was compiled is not compiled again."""
    wait_for(lambda: not alive(pid), 10)
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    Path(f"{gate}.go").touch()
    assert bench.run()["reused"] == 1
    assert bench.counts == ["compile two.cpp", "link"]


def test_eight_threads_wait_for_one_build(bench):
    (told,), _ = Program(bench, "threads").end()
    assert [result["text"] for result in told["results"]] == 8 * [TEXT]
    assert bench.counts == ALL


def test_a_build_that_a_thread_began(bench):
    (_, told), _ = Program(bench, "wait", IN_A_THREAD="1").end()
    assert told["results"][0]["text"] == TEXT
    out, said = Program(bench, "leave", IN_A_THREAD="1").end()
    assert out == [{"started": True}]
    assert "failed" not in said


def test_eight_processes_make_one_build(bench):
    programs = [Program(bench, "wait") for _ in range(8)]
    told = [program.end()[0][1]["results"][0] for program in programs]
    assert [result["text"] for result in told] == 8 * [TEXT]
    assert sorted(result["cached"] for result in told) == [False] + 7 * [True]
    assert bench.counts == ALL


def test_two_ranks_of_torchrun(bench):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    out, said = Program(bench, "wait", launcher=launcher).end()
    assert [line["results"][0]["text"] for line in out if "results" in line] == 2 * [TEXT]
    assert said.count("lltm_jit: building") == 1
    assert bench.counts == ALL


def test_an_error_is_told_when_it_happens_and_raised_at_each_use(bench):
    bench.write("one/one.cpp", "//! error no such thing\n")
    _, said = Program(bench, "leave").end()
    assert "its first use raises this:\nerror: no such thing\n" in said or "finishing" in said
    (told,), _ = Program(bench, "wait_twice").end()
    first, second = told["results"]
    assert first == second
    assert first["error"] == "BuildError"
    assert first["message"].startswith("error: no such thing\n")


def test_a_compiler_that_is_killed(bench, gate):
    program = Program(bench, "wait")
    os.kill(compiler_pid(gate), signal.SIGKILL)
    (_, told), _ = program.end()
    assert told["results"][0]["error"] == "BuildError"


def test_a_process_that_is_killed_leaves_no_compiler(bench, gate):
    program = Program(bench, "leave")
    pid = compiler_pid(gate)
    program.process.kill()
    program.end(-signal.SIGKILL)
    wait_for(lambda: not alive(pid), 10)


def test_another_build_of_the_program_goes_first(bench, gate, tmp_path):
    foreground = tmp_path / "foreground"
    foreground.mkdir()
    (foreground / "mine.cpp").write_text("mine\n")
    program = Program(bench, "foreground", FOREGROUND=str(foreground))
    out, said = program.end()
    assert out[-1] == {"results": [1]}
    assert "finishing" not in said


def test_a_forked_child_takes_the_parents_build(bench, gate):
    program = Program(bench, "fork")
    program.line()
    compiler_pid(gate)
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    time.sleep(0.5)
    Path(f"{gate}.go").touch()
    out, _ = program.end()
    assert out == [{"child_cached": True}]
    assert bench.counts == ALL


def test_a_forked_child_outlives_a_parent_that_was_building(bench, gate):
    """It holds none of the parent's locks, and keeps none of its compilers."""
    program = Program(bench, "fork")
    program.line()
    pid = compiler_pid(gate)
    program.process.kill()
    wait_for(lambda: not alive(pid), 10)
    Path(f"{gate}.go").touch()
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    assert program.line() == {"child_cached": False}


def test_the_thread_of_a_build_imports_nothing(bench):
    """A child that was forked meanwhile would wait forever where it imports the same."""
    ((told,), _) = Program(bench, "imports").end()
    assert [name for name in told["imported"] if not name.startswith("lltm_jit._builds.")] == []


@pytest.mark.parametrize("ninja", ["jobserver", "turns"])
def test_builds_share_a_pool_of_compilers(bench, tmp_path, ninja):
    """With one compiler at a time, one of two builds waits for the other's."""
    gates = []
    for name in ("first", "second"):
        gates.append(tmp_path / f"{name}.gate")
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.cpp").write_text(f"//! wait {gates[-1]}\n")
    environment = {"MAX_JOBS": "1"}
    if ninja == "turns":
        environment |= older_ninja(tmp_path)
    program = Program(bench, "wait", tmp_path / "first", tmp_path / "second", **environment)
    wait_for(lambda: any(gate.exists() for gate in gates))
    time.sleep(1)
    assert sorted(gate.exists() for gate in gates) == [False, True]
    for gate in gates:
        Path(f"{gate}.go").touch()
    (_, told), _ = program.end()
    assert [result["compiled"] for result in told["results"]] == [1, 1]


def older_ninja(directory: Path) -> dict[str, str]:
    """Variables for a ninja that knows no jobserver, and no wheel of ninja's."""
    folder = directory / "ninja"
    folder.mkdir()
    (folder / "ninja.py").write_text(f"BIN_DIR = {str(folder)!r}\n")
    script = folder / "ninja"
    real = find_ninja()
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.11.1 && exit\nexec {real} "$@"\n')
    script.chmod(0o755)
    return {
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
