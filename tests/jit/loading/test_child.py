"""The child that builds while the program goes on, and the import of the package that starts it."""

import os
import signal
from pathlib import Path

import pytest
from harness import ALL, Program, alive, children, slow, wait_for

FOUND = {"text": "two", "cached": True, "reused": 0}  # what the child made


@pytest.fixture
def gate(bench, gate):
    """The second file's compiler waits here."""
    bench.write("two/two.cpp", f"{gate.order}two\n")
    return gate


def noticed(bench) -> bool:
    """Whether ninja knows that the first file's compiler has ended."""
    return any("one.o" in log.read_text() for log in bench.builds.glob("work/*/.ninja_log"))


def next_use(bench) -> dict:
    """What the first use gives in a program that starts no child."""
    return Program(bench, "wait", ALONE="1").end()[0][1]["used"]


def test_who_waits_sees_the_childs_progress_and_leaves_no_zombie(bench, gate):
    program = Program(bench, "wait", AFTER=str(gate.path))
    assert program.line() == {"started": True}
    gate.reached()
    (pid,) = children(bench)
    lines = iter(program.process.stderr.readline, "")
    assert next(lines).startswith(f"lltm_jit: waiting for process {pid}, which has been building")
    assert next(lines) == "lltm_jit: [1/3] one.cpp\n"
    gate.open()
    (told,), said = program.end()
    assert told == {"used": FOUND, "children": [[]]}
    assert "building" not in said
    assert bench.counts == ALL


def test_nothing_is_printed_and_the_environment_is_that_of_the_start(bench, gate):
    program = Program(bench, "stay", launcher=("-X", "dev"))
    assert program.line() == {"threads": 1}
    gate.reached()
    gate.open()
    wait_for(lambda: not children(bench))
    assert program.end() == ([], "")
    assert not Path(f"{bench.builds.parent}-other").exists()
    assert next_use(bench) == FOUND


@pytest.mark.parametrize("how", ["by itself", "killed", "deaf to Ctrl-C", "with a forked one left"])
def test_the_child_ends_with_its_parent_and_what_it_compiled_is_kept(bench, gate, how):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if "deaf" in how else None
    program = Program(bench, "fork" if "forked" in how else "stay")
    if before:
        signal.signal(signal.SIGINT, before)
    program.line()
    pid = gate.reached()
    wait_for(lambda: noticed(bench))
    program.end() if how == "by itself" else program.kill()
    wait_for(lambda: not alive(pid) and not children(bench))
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    gate.open()
    if "forked" in how:
        program.go_on()
        used = program.line()["used"]
    else:
        used = next_use(bench)
    assert used == {"text": "two", "cached": False, "reused": 1}
    assert bench.counts == ["compile two.cpp", "link"]


@pytest.mark.parametrize("imports", [False, True])
def test_a_child_that_has_just_begun_ends_with_its_parent(bench, gate, imports):
    place = bench.directory / "import"
    program = Program(bench, "stay", **({"IMPORT_WAITS": str(place)} if imports else {}))
    wait_for(lambda: place.exists() if imports else children(bench))
    program.kill()
    wait_for(lambda: not children(bench))


def test_who_waits_takes_over_from_a_child_that_was_killed(bench, gate):
    program = Program(bench, "wait", AFTER=str(gate.path))
    pid = gate.reached()
    (child,) = children(bench)
    assert "waiting for process" in program.process.stderr.readline()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    gate.open()
    (_, told), said = program.end()
    assert told["used"]["cached"] is False
    assert "building _C for CPU" in said


def test_each_use_tries_again_what_has_failed(bench, gate):
    bench.write("two/two.cpp", f"{gate.order}//! error no such thing\n")
    program = Program(bench, "wait_twice")
    gate.reached()
    gate.open()
    (told,), _ = program.end()
    first, second = told["used"]
    assert first == second
    assert first["error"] == "BuildError"
    assert first["message"].startswith("error: no such thing\n  --> ")
    assert bench.counts.count("compile two.cpp") >= 2


@pytest.mark.parametrize("alone", [False, True])
def test_a_wait_or_a_build_that_was_interrupted_in_a_notebook(bench, gate, alone):
    """The child goes on; without one, what is compiled is kept."""
    how = {"ALONE": "1"} if alone else {"AFTER": str(gate.path)}
    program = Program(bench, "interrupted", **how)
    assert program.line() == {"started": True}
    gate.reached()
    assert ("building" if alone else "waiting for") in program.process.stderr.readline()
    wait_for(lambda: noticed(bench))
    program.process.send_signal(signal.SIGINT)
    assert program.line() == {"interrupted": True}
    gate.open()
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
    programs = [Program(bench, "wait", AFTER=str(gate.path)) for _ in range(8)]
    for program in programs:
        program.line()
    gate.reached()
    assert len(children(bench)) == 1
    gate.open()
    assert [program.end()[0][0]["used"] for program in programs] == 8 * [FOUND]
    assert bench.counts == ALL


@pytest.fixture
def own(bench) -> str:
    """The sources of what the program loads itself."""
    return str(bench.write(bench.directory / "own/own.cpp", "own\n").parent)


@pytest.mark.parametrize("cached", [False, True])
def test_what_the_program_loads_ends_the_child_at_once(bench, gate, own, cached):
    """The first use of ours goes on with what the child has compiled."""
    if cached:
        Program(bench, "own", ALONE="1", OWN=own).process.communicate("\n")
        assert bench.counts == ["compile own.cpp", "link"]
    program = Program(bench, "own", OWN=own)
    pid = gate.reached()
    wait_for(lambda: noticed(bench))
    program.go_on()
    assert program.line() == {"own": True}
    wait_for(lambda: not alive(pid) and not children(bench))
    gate.open()
    program.go_on()
    (told,), _ = program.end()
    assert told["used"] == {"text": "two", "cached": False, "reused": 1}


def test_a_program_that_closes_all_files(bench, gate, own):
    """As one does that becomes a daemon: the child ends, and what has its number is left alone."""
    program = Program(bench, "own", OWN=own, CLOSE="1")
    gate.reached()
    program.go_on()
    assert program.line() == {"own": True}
    wait_for(lambda: not children(bench))
    gate.open()
    program.go_on()
    (told,), _ = program.end()
    assert told["used"]["text"] == "two"
    assert {*told["open"]} == {0}


def test_a_forked_process_waits_for_the_child(bench, gate):
    program = Program(bench, "fork")
    program.line()
    gate.reached()
    program.go_on()
    assert "waiting for process" in program.process.stderr.readline()
    gate.open()
    (told,), _ = program.end()
    assert told["used"] == FOUND
    assert bench.counts == ALL


def test_what_is_wanted_later_joins_what_is_being_built(bench, gate):
    """Also below `nohup`, where a child that has just begun ignores SIGHUP."""
    bench.write(bench.directory / "basic/later.cpp", "later\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    program = Program(bench, "stay", "_C", "basic")
    signal.signal(signal.SIGHUP, before)
    program.line()
    gate.reached()
    gate.open()
    wait_for(lambda: len(bench.records) == 2)
    wait_for(lambda: not children(bench))
    program.end()


USE = """
try:
    lltm_jit.native.rnn
except lltm_jit.LltmJitError as error:
    print(error)
else:
    print("used")
"""


def test_an_import_starts_no_thread_and_the_first_use_waits_for_its_build(bench, package):
    """With the package and torch themselves, as in what follows."""
    bench.write("rnn/bindings.cpp", f"{package.gate.order}rnn\n")
    program = "import os, threading, time, lltm_jit\nprint(threading.active_count(), flush=True)\n"
    program += f"while not os.path.exists({str(package.gate.path)!r}):\n    time.sleep(0.02)\n"
    with package.started("-c", program + USE) as process:
        assert process.stdout.readline() == "1\n"
        package.gate.reached()
        assert process.stdout.readline().startswith("lltm_jit: waiting for process ")
        package.gate.open()
        assert process.communicate(timeout=50)[0].endswith("used\n")
    assert bench.counts == ["compile bindings.cpp", "link"]


@pytest.mark.parametrize("background", ["1", slow("0")])
def test_without_a_compiler_an_import_works_and_the_first_use_tells(bench, package, background):
    variables = {"CXX": "", "PATH": str(bench.directory), "LLTM_JIT_BACKGROUND": background}
    program = f"try:\n    import lltm_jit\nexcept RuntimeError as e:\n    print(e); quit()\n{USE}"
    assert package.run(program, **variables).startswith("no C++ compiler was found")


SANDBOX = """
import builtins, io, os
def refused(function):
    def call(path, *args, **named):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **named)
    return call
os.open, os.listdir, os.readlink = map(refused, (os.open, os.listdir, os.readlink))
builtins.open = io.open = refused(open)
"""


def test_a_program_in_a_removed_directory_and_without_proc(bench, package):
    gone = bench.directory / "gone"
    gone.mkdir()
    program = f"import torch, os; os.chdir({str(gone)!r}); os.rmdir(os.getcwd())\n{SANDBOX}\n"
    program += f"import lltm_jit\n{USE}\nlltm_jit.load('_C', {str(bench.sources / 'two')!r})\n"
    assert "used\n" in package.run(program)
    assert {"compile bindings.cpp", "compile two.cpp"} <= {*bench.counts}
    assert not gone.exists()
