"""What a person sees of a build, on a terminal, in a log, in a notebook."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
import time
import types

import pytest
import tqdm
from harness import ALL, HERE, alive

from lltm_jit.jit import BuildError, load
from lltm_jit.jit.user import progress
from lltm_jit.jit.user.progress import Follower, Reporter


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
    said = bench.run(LLTM_JIT_VERBOSE="1")["said"]
    assert "no work to do" in said


def test_every_command_is_told_once_before_its_step(bench):
    lines = bench.run(LLTM_JIT_VERBOSE="1")["said"].splitlines()
    for target, file in (("one.o", "one.cpp"), ("two.o", "two.cpp"), ("_C.so", "link")):
        (told,) = (number for number, line in enumerate(lines) if f" -o {target}" in line)
        assert lines[told].startswith("lltm_jit: ran ")
        assert re.fullmatch(rf"lltm_jit: \[\d/3\] {file}", lines[told + 1])


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


def test_the_first_error_ends_the_other_compilers_and_what_was_finished_stays(
    bench, tmp_path, monkeypatch
):
    monkeypatch.setenv("MAX_JOBS", "3")
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    bench.write("two/two.cpp", f"//! after {gate}\n//! error x\n")
    bench.write("three/three.cpp", "three\n")
    began = time.monotonic()
    with pytest.raises(BuildError, match="error: x"):
        bench.load()
    assert time.monotonic() - began < 100  # the compiler at the gate waits for minutes
    assert not alive(int(gate.read_text()))
    assert "link" not in bench.counts
    bench.write("one/one.cpp", "one\n")
    bench.write("two/two.cpp", "two\n")
    bench.load()
    assert bench.counts == ["compile one.cpp", "compile two.cpp", "link"]


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("c++ -c '/a b/x.cpp' -o x.o", "x.cpp"),
        ("c++ -c x.cpp -o x.o", "x.cpp"),
        # Another source has this name.
        (f"c++ -c /a/kernels/one/cpu/x.cpp -o x.{'0a' * 10}.o", "one/cpu/x.cpp"),
    ],
)
def test_a_step_names_the_source(capsys, command, source):
    reporter = Reporter(verbose=False)
    reporter.line(f"[1/2 0.5] {command}")
    reporter.close()
    assert capsys.readouterr().err == f"lltm_jit: [1/2] {source}\n"


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
        file.write("o\n[1/2 0.5] c++ -c x.cpp -o x.o\n")
    assert heard() == [
        "lltm_jit: two",
        "lltm_jit: ran c++ -c x.cpp -o x.o",
        "lltm_jit: [1/2] x.cpp",
    ]
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


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


UNHEARD = {
    "none": None,
    "closed": closed(),
    "a terminal that is gone": Broken(),
    "a stream that is gone": types.SimpleNamespace(write=Broken().write),
}


@pytest.mark.parametrize("stream", UNHEARD.values(), ids=UNHEARD)
def test_a_standard_error_that_takes_nothing(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    reporter = Reporter(verbose=False)
    reporter.start(2)
    reporter.line("[1/2 0.5] c++ -c x.cpp -o x.o")
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


@pytest.mark.parametrize(
    "mark", ["{}", "\x1b[31m{}\x1b[0m", "\x1b]8;;http://x\x1b\\{}\x1b]8;;\x07"]
)
def test_colours_and_links_change_nothing(capsys, mark):
    reporter = Reporter(verbose=False)
    for line in ("[1/2 0.5] c++ -c x.cpp -o x.o", "FAILED: [code=1] x.o"):
        reporter.line(mark.format(line))
    reporter.close()
    assert capsys.readouterr().err == "lltm_jit: [1/2] x.cpp failed\n"


def test_a_log_on_a_full_disk_does_not_stop_the_build(bench):
    process = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$@" 2>/dev/full',
            "sh",
            sys.executable,
            HERE / "load_once.py",
            bench.sources,
        ],
        env={**os.environ, **bench.environment},
        stdout=subprocess.PIPE,
    )
    assert json.loads(process.stdout)["text"].endswith("two")


@pytest.mark.parametrize(("widgets", "expected"), [(True, "widget"), (False, "lines")])
def test_in_a_notebook(monkeypatch, capsys, widgets, expected):
    shown = []
    fake = types.ModuleType("tqdm.notebook")
    fake.tqdm = lambda **arguments: shown.append(arguments) or Silent()
    monkeypatch.setitem(sys.modules, "tqdm.notebook", fake)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr(progress, "find_spec", lambda name: widgets or None)
    reporter = Reporter(verbose=False)
    reporter.start(2)
    reporter.line("[1/2 0.5] c++ -c x.cpp -o x.o")
    reporter.close()
    assert (len(shown), capsys.readouterr().err) == (
        (1, "") if expected == "widget" else (0, "lltm_jit: [1/2] x.cpp\n")
    )


class Silent:
    """A bar that shows nothing."""

    def __getattr__(self, name):
        return lambda *arguments, **keywords: None
