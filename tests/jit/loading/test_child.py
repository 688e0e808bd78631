"""The child that builds while the program goes on."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from child_bench import FOUND, Program, children, compiled, go, kept, noticed, state
from engine_bench import ALL, alive, compiler_pid, wait_for

from lltm_jit.jit.loading import child


@pytest.fixture
def gate(bench, tmp_path) -> Path:
    """The second file's compiler waits here."""
    gate = tmp_path / "gate"
    bench.write("two/two.cpp", f"//! wait {gate}\ntwo\n")
    return gate


def test_who_waits_sees_the_childs_progress(bench, gate):
    program = Program(bench, "wait")
    assert program.line() == {"started": True}
    compiler_pid(gate)
    lines = iter(program.process.stderr.readline, "")
    (pid,) = children(bench)
    said = next(lines)
    assert "waiting for the package's own build, which an import began at " in said
    assert said.endswith(f" (process {pid})\n")
    assert next(lines) == "lltm_jit: [1/3] one.cpp\n"
    go(gate)
    (told,), said = program.end()
    assert told["results"] == [FOUND]
    assert "building" not in said
    assert bench.counts == ALL


def test_nothing_is_printed_and_no_thread_is_started(bench, gate):
    program = Program(bench, "stay", launcher=("-X", "dev"))
    assert program.line() == {"threads": 1}
    compiler_pid(gate)
    go(gate)
    wait_for(lambda: not children(bench))
    assert program.end() == ([], "")


def test_the_environment_is_that_of_the_start(bench, gate):
    program = Program(bench, "stay")
    program.line()
    compiler_pid(gate)
    go(gate)
    wait_for(lambda: not children(bench))
    program.end()
    assert bench.run()["cached"] is True
    assert not Path(f"{bench.builds.parent}-other").exists()


@pytest.mark.parametrize("how", ["by itself", "killed", "with a forked child left"])
def test_the_child_ends_with_its_parent_and_what_it_compiled_is_kept(bench, gate, how):
    program = Program(bench, "fork" if "forked" in how else "stay")
    program.line()
    pid = compiler_pid(gate)
    wait_for(lambda: noticed(bench))
    if how == "by itself":
        program.end()
    else:
        program.process.kill()
        program.process.wait()
    wait_for(lambda: not alive(pid) and not children(bench))
    wait_for(lambda: kept(bench))
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    go(gate)
    if "forked" in how:
        program.go_on()
        assert program.line()["results"][0]["reused"] == 1
    else:
        assert bench.run()["reused"] == 1
    assert bench.counts == ["compile two.cpp", "link"]


def test_who_waits_takes_over_from_a_child_that_was_killed(bench, gate):
    program = Program(bench, "wait")
    pid = compiler_pid(gate)
    (child,) = children(bench)
    assert "waiting for the package" in program.process.stderr.readline()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    go(gate)
    (_, told), said = program.end()
    assert told["results"] == [{"text": "two", "cached": False, "reused": 0}]
    assert "building _C for CPU" in said


@pytest.mark.parametrize("late", [True, False])
def test_a_failed_build_is_raised_and_not_tried_again(bench, gate, late, monkeypatch):
    monkeypatch.chdir(bench.directory)
    bench.write("two/two.cpp", f"//! wait {gate}\n//! error no such thing\n")
    program = Program(bench, "interrupted" if late else "wait_twice")
    compiler_pid(gate)
    if late:
        assert "waiting for" in program.process.stderr.readline()
        program.process.send_signal(signal.SIGINT)
        wait_for(lambda: program.process.stdout.readline() == '{"interrupted": true}\n')
    go(gate)
    wait_for(lambda: not children(bench))
    out, _ = program.end()
    results = out[-1]["results"]
    assert all(result == results[0] for result in results)
    assert results[0]["error"] == "BuildError"
    assert results[0]["message"].startswith("error: no such thing\n  --> kernels/two/two.cpp:2:5")
    assert bench.counts.count("compile two.cpp") == 1


def test_a_wait_that_was_interrupted_in_a_notebook(bench, gate):
    program = Program(bench, "interrupted")
    assert program.line() == {"started": True}
    compiler_pid(gate)
    assert "waiting for" in program.process.stderr.readline()
    program.process.send_signal(signal.SIGINT)
    assert program.line() == {"interrupted": True}
    program.go_on()
    go(gate)
    (told,), _ = program.end()
    assert told["results"][0]["cached"] is True
    assert bench.counts == ALL


def test_eight_threads_wait_for_one_build(bench):
    (told,), _ = Program(bench, "threads").end()
    assert told["results"] == 8 * [FOUND]
    assert bench.counts == ALL


def test_several_processes_start_one_child(bench, gate):
    programs = [Program(bench, "wait") for _ in range(4)]
    for program in programs:
        program.line()
    compiler_pid(gate)
    assert len(children(bench)) == 1
    go(gate)
    told = [program.end()[0][0]["results"][0] for program in programs]
    assert told == 4 * [FOUND]
    assert bench.counts == ALL


@pytest.mark.slow
def test_two_ranks_of_torchrun(bench):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    out, said = Program(bench, "wait", launcher=launcher).end()
    assert [line["results"] for line in out if "results" in line] == 2 * [[FOUND]]
    assert said.count("lltm_jit: waiting") <= 1
    assert bench.counts == ALL


def test_a_compiler_that_is_killed(bench, gate):
    program = Program(bench, "wait")
    os.kill(compiler_pid(gate), signal.SIGKILL)
    (_, told), _ = program.end()
    assert told["results"][0]["error"] == "BuildError"


@pytest.fixture
def own(bench, tmp_path) -> Path:
    """The sources of a build that the program makes itself, and its gate."""
    directory = tmp_path / "own"
    directory.mkdir()
    (directory / "own.cpp").write_text(f"//! wait {tmp_path / 'own.gate'}\nown\n")
    return directory


def test_the_programs_own_build_goes_first(bench, gate, own):
    """The child's compilers stand still meanwhile, and go on afterwards."""
    program = Program(bench, "own", OWN=str(own))
    pid = compiler_pid(gate)
    assert state(pid) != "T"
    program.go_on()
    compiler_pid(own.parent / "own.gate")
    wait_for(lambda: state(pid) == "T")
    go(gate)
    go(own.parent / "own.gate")
    (_, told, last), _ = program.end()
    assert told == {"own": 1}
    assert last["results"] == [FOUND]
    assert bench.counts == sorted([*ALL, "compile own.cpp", "link"])


def test_a_program_that_is_killed_leaves_no_compiler_that_stands_still(bench, gate, own):
    program = Program(bench, "own", OWN=str(own))
    pid = compiler_pid(gate)
    program.go_on()
    mine = compiler_pid(own.parent / "own.gate")
    wait_for(lambda: state(pid) == "T")
    program.process.kill()
    program.end(-signal.SIGKILL)
    wait_for(lambda: not alive(pid) and not alive(mine) and not children(bench))


def test_a_forked_process_waits_for_the_child(bench, gate):
    program = Program(bench, "fork")
    program.line()
    compiler_pid(gate)
    program.go_on()
    assert "waiting for the package" in program.process.stderr.readline()
    go(gate)
    (told,), _ = program.end()
    assert told["results"][0]["cached"] is True
    assert bench.counts == ALL


def test_what_is_wanted_later_joins_what_is_being_built(bench, gate, tmp_path):
    """All of it shares one child, and so MAX_JOBS compilers."""
    later = tmp_path / "later"
    later.mkdir()
    (later / "later.cpp").write_text("later\n")
    program = Program(bench, "stay", bench.sources, later, ONE_BY_ONE="1")
    program.line()
    wait_for(lambda: compiled(bench, "later.cpp"))
    compiler_pid(gate)
    wait_for(lambda: len(children(bench)) == 1)
    go(gate)
    wait_for(lambda: not children(bench))
    program.end()
    assert bench.run()["cached"] is True


def test_a_program_that_closes_all_files(bench, gate, own):
    """As one does that becomes a daemon: the child ends, and the program builds."""
    program = Program(bench, "own", OWN=str(own), CLOSE="1")
    program.line()
    program.go_on()
    go(gate)
    go(own.parent / "own.gate")
    (told, last), _ = program.end()
    assert told == {"own": 1}
    assert last["results"][0]["text"] == "two"


def test_a_file_under_the_channels_number_is_left_alone(tmp_path, monkeypatch):
    """A program that closed all files, and then opened others."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(child, "_channel", ours)
    monkeypatch.setattr(child, "_identity", os.fstat(ours.fileno()), raising=False)
    number = ours.fileno()
    with theirs, (tmp_path / "file").open("wb") as file:
        os.dup2(file.fileno(), number)
        with child.stands_back():
            pass
        assert os.path.samestat(os.fstat(number), os.fstat(file.fileno()))
        assert (tmp_path / "file").read_bytes() == b""
        os.close(number)
    assert child._channel is None
