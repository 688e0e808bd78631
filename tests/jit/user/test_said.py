"""What a person sees of a build: on a terminal, in a log, in a notebook, where nothing is read."""

import contextlib
import errno
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import types
from unittest.mock import Mock

import pytest
import tqdm
from harness import ALL, PROGRAM

from lltm_jit.jit import BuildError, load
from lltm_jit.jit.user import progress
from lltm_jit.jit.user.progress import Follower, Reporter

STEP = "[1/2 0.5] c++ -c x.cpp -o x.o"


@pytest.fixture
def reporter():
    return Reporter(verbose=False)


def test_quiet(bench):
    assert bench.run(LLTM_JIT_QUIET="1")["said"] == ""
    assert bench.counts == ALL


def test_lines_in_a_log(bench):
    lines = bench.run()["said"].splitlines()
    assert lines[0] == "lltm_jit: building _C for CPU (g++ 1.2, 2 files, 2 jobs): first build"
    assert [line.split(" (")[0] for line in lines[1:-1]][-1] == "lltm_jit: [3/3] link"
    assert lines[-1].startswith("lltm_jit: _C ready in ")
    assert lines[-1].endswith(" s (2 compiled, 0 reused)")


def test_whole_story(bench):
    """With every command once, before its step."""
    said = bench.run(LLTM_JIT_VERBOSE="1")["said"]
    for part in (
        f"builds are kept in {bench.builds.parent}",
        "2 jobs, as MAX_JOBS says",
        "torch wrote the build file ",
        f" {bench.environment['CXX']} ",
        "[1/3] ",
        " -c ",
        "ready in ",
        "loaded ",
    ):
        assert part in said
    lines = said.splitlines()
    for target, file in (("one.o", "one.cpp"), ("two.o", "two.cpp"), ("_C.so", "link")):
        (told,) = (number for number, line in enumerate(lines) if f" -o {target}" in line)
        assert lines[told].startswith("lltm_jit: ran ")
        assert re.fullmatch(rf"lltm_jit: \[\d/3\] {file}", lines[told + 1])
    assert "no work to do" in bench.run(LLTM_JIT_VERBOSE="1")["said"]


def test_what_ninja_says_of_its_end_is_left_out(capsys):
    reporter = Reporter(verbose=True)
    reporter.line("ninja: build stopped: subcommand failed.")
    reporter.line("words of a compiler")
    assert capsys.readouterr().err == "lltm_jit: words of a compiler\n"


def test_a_warning_is_shown_with_its_line(real, capsys):
    source = real.write("one.cpp", "int f() {}\n")
    load(real.spec(paths=(str(source),), python_module=False))
    said = capsys.readouterr().err
    assert re.search(r"lltm_jit: warning: no return statement.*\n  --> .*one\.cpp:1:10\n", said)


def test_a_failed_file_is_marked(bench, capsys):
    bench.write("one/one.cpp", "//! error x\n")
    with pytest.raises(BuildError):
        load(bench.spec(), verbose=True)
    said = capsys.readouterr().err
    assert re.search(r"lltm_jit: \[\d/3\] one.cpp failed( \(\d+\.\d s\))?\n", said)
    assert not re.search(r"\] one.cpp( \(|\n)", said)
    assert "FAILED" not in said
    assert "build stopped" not in said


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["[1/2 0.5] c++ -c '/a b/x.cpp' -o x.o"], "x.cpp"),
        ([STEP], "x.cpp"),
        # Another source has this name.
        ([f"[1/2 0.5] c++ -c /a/kernels/one/cpu/x.cpp -o x.{'0a' * 10}.o"], "one/cpu/x.cpp"),
        # Colours and links change nothing.
        *(
            ([mark.format(line) for line in (STEP, "FAILED: [code=1] x.o")], "x.cpp failed")
            for mark in ("{}", "\x1b[31m{}\x1b[0m", "\x1b]8;;http://x\x1b\\{}\x1b]8;;\x07")
        ),
    ],
)
def test_a_step_names_the_source(reporter, capsys, lines, told):
    for line in lines:
        reporter.line(line)
    reporter.close()
    assert capsys.readouterr().err == f"lltm_jit: [1/2] {told}\n"


def test_who_waits_sees_each_line_of_the_log_once(tmp_path, capsys):
    """There may be none yet, half a line, and then the log of another build."""
    log = tmp_path / "build.log"
    follower = Follower(Reporter(verbose=True), log)

    def heard() -> list[str]:
        follower.look()
        return capsys.readouterr().err.splitlines()

    assert heard() == []
    log.write_text("one\ntw")
    assert heard() == ["lltm_jit: one"]
    with log.open("a") as file:
        file.write(f"o\n{STEP}\n")
    told = ["lltm_jit: two", "lltm_jit: ran c++ -c x.cpp -o x.o", "lltm_jit: [1/2] x.cpp"]
    assert heard() == told
    assert heard() == []
    (tmp_path / "new").write_text("one\n")
    (tmp_path / "new").replace(log)
    assert heard() == ["lltm_jit: one"]
    log.unlink()
    assert heard() == []
    log.mkdir()
    assert heard() == []


class Broken(io.TextIOBase):
    """A terminal that is gone."""

    def isatty(self):
        return True

    def write(self, text):
        raise OSError(errno.EIO, "Input/output error")


closed = io.StringIO()
closed.close()
UNHEARD = {
    "none": None,
    "closed": closed,
    "a terminal that is gone": Broken(),
    "a stream that is gone": types.SimpleNamespace(write=Broken().write),
}


@pytest.mark.parametrize("stream", UNHEARD.values(), ids=UNHEARD)
def test_a_standard_error_that_takes_nothing(monkeypatch, reporter, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    reporter.start(2)
    reporter.line(STEP)
    reporter.tick()
    reporter.say("unheard")
    reporter.close()


def test_standard_error_that_can_only_write(monkeypatch):
    written = []
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(write=written.append))
    Reporter().start(2)
    Reporter().say("heard")
    assert "".join(written) == "lltm_jit: heard\n"


def test_a_line_is_written_above_the_users_own_bar(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with tqdm.tqdm(total=2, ncols=40):
        Reporter().say("heard")
    assert "\rlltm_jit: heard\n" in stream.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("text", ["‘quotes’ of gcc", "a path that is no UTF-8: \udcff"])
def test_a_log_in_any_encoding(monkeypatch, encoding, text):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, encoding, write_through=True))
    Reporter().say(text)
    told = text if encoding == "utf-8" and text.isprintable() else ascii(text)[1:-1]
    assert written.getvalue().decode() == f"lltm_jit: {told}\n"


def test_a_log_on_a_full_disk_does_not_stop_the_build(bench):
    words = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh", sys.executable, PROGRAM, "load"]
    environment = {**os.environ, **bench.environment}
    # Python itself fails at its end, when it flushes what was printed; so the status may be 120.
    done = subprocess.run([*words, bench.sources], env=environment, stdout=subprocess.PIPE)
    assert done.returncode in (0, 120)
    assert json.loads(done.stdout)["text"].endswith("two")


@pytest.mark.parametrize("widgets", [True, False])
def test_in_a_notebook(monkeypatch, reporter, widgets):
    """A bar: a widget if there are widgets, else one line of text."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", stream)
    notebook = Mock()
    monkeypatch.setitem(sys.modules, "tqdm.notebook", notebook)
    monkeypatch.setattr(progress, "find_spec", lambda name: widgets or None)
    reporter.start(2)
    reporter.line(STEP)
    reporter.close()
    written = stream.getvalue()
    assert "\n" not in written
    assert (notebook.tqdm.call_count, "| 1/2 [" in written) == (int(widgets), not widgets)


WIDTH = 100


def written(bench, *words) -> str:
    """All that a program writes to a terminal."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    how = {"env": {**os.environ, **bench.environment}, "stdout": terminal, "stderr": terminal}
    process = subprocess.Popen([sys.executable, PROGRAM, *words], **how)
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose other side is closed
        while block := os.read(controller, 4096):
            seen += block
    assert process.wait() == 0, seen.decode()
    return seen.decode()


def shown(text: str) -> list[str]:
    """The lines that stay on a terminal, which moves the cursor as it is told."""
    rows, row, column = [""], 0, 0
    for up, character in re.findall(r"\x1b\[(\d*)A|(.)", text, re.DOTALL):
        if not character:
            row -= int(up or 1)
        elif character == "\r":
            column = 0
        elif character == "\n" or column == WIDTH:
            row, column = row + 1, 0
        if row == len(rows):
            rows.append("")
        if character and character not in "\r\n":
            rows[row] = f"{rows[row][:column]:<{column}}{character}{rows[row][column + 1 :]}"
            column += 1
    return [line.rstrip() for line in rows if line.strip()]


@pytest.mark.parametrize("names", [[], ["_C"], ["_C", "basic"]], ids=["here", "thread", "threads"])
def test_builds_leave_their_lines_above_the_programs_own_bar(bench, names):
    bench.write("one/one.cpp", "//! sleep 0.5\n")
    text = written(bench, "bars", bench.sources, *names)
    for name in names or ["_C"]:
        assert f"lltm_jit: {name}:  " in text  # a bar, with the build's name
    lines = shown(text)
    builds = len(names or ["_C"])
    for told in (r"lltm_jit: building \w+ for CPU", r"lltm_jit: \w+ ready in"):
        assert sum(bool(re.match(told, line)) for line in lines) == builds
    assert lines[-2].startswith("training: 100%|")
    assert lines[-1] == "done"
    assert len(lines) == 2 * builds + 2, "\n".join(lines)


def test_bar_on_a_terminal(bench):
    bench.write("one/one.cpp", "//! sleep 0.5\n")
    text = written(bench, "load", bench.sources)
    for part in ("lltm_jit: _C: 100%|", "3/3", "one.cpp"):
        assert part in text
    assert "\x1b[3" not in text  # no colours
    *_, last, _ = text.splitlines()  # the program itself prints one more
    assert last.startswith("lltm_jit: _C ready in ")
