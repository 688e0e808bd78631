"""The child that builds while the program goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from child_bench import FOUND, Program, children, go, noticed
from engine_bench import ALL, alive, compiler_pid, wait_for


@pytest.fixture
def gate(bench, tmp_path) -> Path:
    """The second file's compiler waits here."""
    gate = tmp_path / "gate"
    bench.write("two/two.cpp", f"//! wait {gate}\ntwo\n")
    return gate


def test_who_waits_sees_the_childs_progress_and_leaves_no_zombie(bench, gate):
    program = Program(bench, "wait", AFTER=str(gate))
    assert program.line() == {"started": True}
    compiler_pid(gate)
    (pid,) = children(bench)
    lines = iter(program.process.stderr.readline, "")
    assert next(lines).startswith(f"lltm_jit: waiting for process {pid}, which has been building")
    assert next(lines) == "lltm_jit: [1/3] one.cpp\n"
    go(gate)
    (told,), said = program.end()
    assert told == {"used": FOUND, "children": [[]]}
    assert "building" not in said
    assert bench.counts == ALL


def test_nothing_is_printed_and_the_environment_is_that_of_the_start(bench, gate):
    program = Program(bench, "stay", launcher=("-X", "dev"))
    assert program.line() == {"threads": 1}
    compiler_pid(gate)
    go(gate)
    wait_for(lambda: not children(bench))
    assert program.end() == ([], "")
    assert not Path(f"{bench.builds.parent}-other").exists()
    assert Program(bench, "wait", ALONE="1").end()[0][1]["used"] == FOUND


@pytest.mark.parametrize("how", ["by itself", "killed", "deaf to Ctrl-C", "with a forked one left"])
def test_the_child_ends_with_its_parent_and_what_it_compiled_is_kept(bench, gate, how):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if "deaf" in how else None
    program = Program(bench, "fork" if "forked" in how else "stay")
    if before:
        signal.signal(signal.SIGINT, before)
    program.line()
    pid = compiler_pid(gate)
    wait_for(lambda: noticed(bench))
    if how == "by itself":
        program.end()
    else:
        program.process.kill()
        program.process.wait()
    wait_for(lambda: not alive(pid) and not children(bench))
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    go(gate)
    if "forked" in how:
        program.go_on()
        used = program.line()["used"]
    else:
        used = Program(bench, "wait", ALONE="1").end()[0][1]["used"]
    assert used == {"text": "two", "cached": False, "reused": 1}
    assert bench.counts == ["compile two.cpp", "link"]


@pytest.mark.parametrize("imports", [False, True])
def test_a_child_that_has_just_begun_ends_with_its_parent(bench, gate, imports):
    variables = {"IMPORT_WAITS": f"{gate}.import"} if imports else {}
    program = Program(bench, "stay", **variables)
    wait_for(lambda: Path(f"{gate}.import").exists() if imports else children(bench))
    program.process.kill()
    program.process.wait()
    wait_for(lambda: not children(bench))


def test_who_waits_takes_over_from_a_child_that_was_killed(bench, gate):
    program = Program(bench, "wait", AFTER=str(gate))
    pid = compiler_pid(gate)
    (child,) = children(bench)
    assert "waiting for process" in program.process.stderr.readline()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    go(gate)
    (_, told), said = program.end()
    assert told["used"]["cached"] is False
    assert "building _C for CPU" in said


def test_each_use_tries_again_what_has_failed(bench, gate):
    bench.write("two/two.cpp", f"//! wait {gate}\n//! error no such thing\n")
    program = Program(bench, "wait_twice")
    compiler_pid(gate)
    go(gate)
    (told,), _ = program.end()
    first, second = told["used"]
    assert first == second
    assert first["error"] == "BuildError"
    assert first["message"].startswith("error: no such thing\n  --> ")
    assert bench.counts.count("compile two.cpp") >= 2


@pytest.mark.parametrize("alone", [False, True])
def test_a_wait_or_a_build_that_was_interrupted_in_a_notebook(bench, gate, alone):
    """The child goes on; without one, what is compiled is kept."""
    program = Program(bench, "interrupted", **({"ALONE": "1"} if alone else {"AFTER": str(gate)}))
    assert program.line() == {"started": True}
    compiler_pid(gate)
    assert ("building" if alone else "waiting for") in program.process.stderr.readline()
    wait_for(lambda: noticed(bench))
    program.process.send_signal(signal.SIGINT)
    assert program.line() == {"interrupted": True}
    go(gate)
    program.go_on()
    (told,), _ = program.end()
    assert told["used"] == {"text": "two", "cached": not alone, "reused": int(alone)}
    assert bench.counts == sorted([*ALL, *(["compile two.cpp"] if alone else [])])


def test_eight_threads_wait_for_one_build(bench):
    (told,), _ = Program(bench, "threads").end()
    # One of them may build itself, before the child has begun.
    assert [each["text"] for each in told["used"]] == 8 * [FOUND["text"]]
    assert bench.counts == ALL


def test_eight_processes_start_one_child(bench, gate):
    programs = [Program(bench, "wait", AFTER=str(gate)) for _ in range(8)]
    for program in programs:
        program.line()
    compiler_pid(gate)
    assert len(children(bench)) == 1
    go(gate)
    told = [program.end()[0][0]["used"] for program in programs]
    assert told == 8 * [FOUND]
    assert bench.counts == ALL


@pytest.mark.slow
def test_two_ranks_of_torchrun(bench):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    out, said = Program(bench, "wait", launcher=launcher).end()
    assert [line["used"]["text"] for line in out if "used" in line] == ["two", "two"]
    assert said.count("lltm_jit: waiting") <= 1
    assert bench.counts == ALL


@pytest.fixture
def own(bench, tmp_path) -> Path:
    """The sources of what the program loads itself."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.cpp").write_text("own\n")
    return tmp_path / "own"


@pytest.mark.parametrize("cached", [False, True])
def test_what_the_program_loads_ends_the_child_at_once(bench, gate, own, cached):
    """The first use of ours goes on with what the child has compiled."""
    if cached:
        Program(bench, "own", ALONE="1", OWN=str(own)).process.communicate("\n")
        assert bench.counts == ["compile own.cpp", "link"]
    program = Program(bench, "own", OWN=str(own))
    pid = compiler_pid(gate)
    wait_for(lambda: noticed(bench))
    program.go_on()
    assert program.line() == {"own": True}
    wait_for(lambda: not alive(pid) and not children(bench))
    go(gate)
    program.go_on()
    (told,), _ = program.end()
    assert told["used"] == {"text": "two", "cached": False, "reused": 1}


def test_a_forked_process_waits_for_the_child(bench, gate):
    program = Program(bench, "fork")
    program.line()
    compiler_pid(gate)
    program.go_on()
    assert "waiting for process" in program.process.stderr.readline()
    go(gate)
    (told,), _ = program.end()
    assert told["used"] == FOUND
    assert bench.counts == ALL


def test_what_is_wanted_later_joins_what_is_being_built(bench, gate, tmp_path):
    (tmp_path / "basic").mkdir()
    (tmp_path / "basic" / "later.cpp").write_text("later\n")
    program = Program(bench, "stay", "_C", "basic", FAMILY__C=str(bench.sources))
    program.line()
    compiler_pid(gate)
    go(gate)
    wait_for(lambda: len(list(bench.builds.glob("*/ok.json"))) == 2)
    wait_for(lambda: not children(bench))
    program.end()


def test_a_program_that_closes_all_files(bench, gate, own):
    """As one does that becomes a daemon: the child ends, and what has its number is left alone."""
    program = Program(bench, "own", OWN=str(own), CLOSE="1")
    compiler_pid(gate)
    program.go_on()
    assert program.line() == {"own": True}
    wait_for(lambda: not children(bench))
    go(gate)
    program.go_on()
    (told,), _ = program.end()
    assert told["used"]["text"] == "two"
    assert {*told["open"]} == {0}
