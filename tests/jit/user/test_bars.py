"""What a terminal shows of builds, and what stays of it beside a bar of the program's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from harness import PROGRAM

WIDTH = 100


def written(words, environment) -> str:
    """All that a program writes to a terminal."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = subprocess.Popen(words, env=environment, stdout=terminal, stderr=terminal)
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
    words = [sys.executable, PROGRAM, "bars", bench.sources, *names]
    text = written(words, {**os.environ, **bench.environment})
    for name in names or ["_C"]:
        assert f"lltm_jit: {name}:  " in text  # a bar, with the build's name
    lines = shown(text)
    builds = len(names or ["_C"])
    assert sum(bool(re.match(r"lltm_jit: building \w+ for CPU", line)) for line in lines) == builds
    assert sum(bool(re.match(r"lltm_jit: \w+ ready in", line)) for line in lines) == builds
    assert lines[-2].startswith("training: 100%|")
    assert lines[-1] == "done"
    assert len(lines) == 2 * builds + 2, "\n".join(lines)


def test_bar_on_a_terminal(bench):
    bench.write("one/one.cpp", "//! sleep 0.5\n")
    words = [sys.executable, PROGRAM, "load", bench.sources]
    text = written(words, {**os.environ, **bench.environment})
    for part in ("lltm_jit: _C: 100%|", "3/3", "one.cpp"):
        assert part in text
    assert "\x1b[3" not in text  # no colours
    *_, last, _ = text.splitlines()  # the program itself prints one more
    assert last.startswith("lltm_jit: _C ready in ")
