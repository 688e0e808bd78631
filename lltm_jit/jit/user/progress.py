"""What the user sees of a build: why it is needed, its progress, and the time it took.

All of it goes to standard error: a progress bar on a terminal and in a notebook, else plain lines.
Only the first process of a node prints, because the others of a job would print the same. A build
goes on even if nothing can be written to standard error.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import settings

STEP = r"\[(\d+)/(\d+) [\d.,]+\] (.*)"  # as NINJA_STATUS says, once the colours are removed
FAILED = "FAILED: "  # how ninja begins the line after a failed step's
_STOPPED = "ninja: build stopped"
_COMPILED = r"\s-c\s+(.+?)\s+-o\s+(\S+)"
_COLOURS = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # and links
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
# Printing fails on a full disk, a closed pipe, terminal or stream, or a stream with write() alone.
_unheard = suppress(OSError, ValueError, AttributeError, LookupError)


class Reporter:
    """Prints the progress of one build.

    Args:
        verbose: print every command and the tools' own lines; by default as LLTM_JIT_VERBOSE says.
        label: the prefix of each line, if several builds print.
    """

    def __init__(self, verbose: bool | None = None, label: str = "") -> None:
        self._label = self._title = label
        self.verbose = settings.flag("LLTM_JIT_VERBOSE") if verbose is None else verbose
        self.quiet = settings.flag("LLTM_JIT_QUIET") or os.environ.get("LOCAL_RANK", "0") != "0"
        self._steps = self._done = 0
        self._ended = ""  # the command that ended last, until it is reported
        self._bar: Any = None

    def say(self, text: str) -> None:
        """Print one line, unless quiet."""
        if not self.quiet:
            _print(f"lltm_jit: {text}")

    def detail(self, text: str) -> None:
        """Print one line, in verbose mode."""
        if self.verbose:
            self.say(text)

    def report(self, text: str) -> None:
        """Print one line about this reporter's build."""
        self.say(f"{self._label}: {text}" if self._label else text)

    def start(self, steps: int, title: str = "", first: str = "") -> None:
        """A build with this many steps starts, and compiles these sources first."""
        self._title = title or self._title
        self._steps, self._done = steps, 0
        self._draw(first)

    def line(self, line: str) -> None:
        """Take one line of the build's output."""
        line = plain(line)
        failed = line.startswith(FAILED)
        self._tell_end(" failed" if failed else "")
        if step := re.match(STEP, line):
            self._done, self._steps, self._ended = int(step[1]), int(step[2]), step[3]
        elif not failed and not line.startswith(_STOPPED):
            self.detail(line)

    def tick(self) -> None:
        """Show that time passes while the compilers are silent."""
        self._tell_end()
        self._draw("")

    def close(self) -> None:
        """Remove the bar; the result line follows."""
        self._tell_end()
        self._steps = 0
        if self._bar is not None:
            with _unheard:
                self._bar.close()
            self._bar = None

    def _tell_end(self, how: str = "") -> None:
        """Report the step that ended; the line after it says whether it failed."""
        command, self._ended = self._ended, ""
        if not command:
            return
        compiled = re.search(_COMPILED, command)
        what = (source_name(_unquoted(compiled[1]), compiled[2]) if compiled else "link") + how
        if not self._draw(what):
            if not how:  # ninja repeats a failed command
                self.detail(f"ran {command}")
            self.report(f"[{self._done}/{self._steps}] {what}")

    def _draw(self, what: str) -> bool:
        """Update the bar. Returns whether there is one."""
        if self._bar is None and self._steps and not (self.quiet or self.verbose):
            self._bar = _open_bar(f"lltm_jit: {self._title}".rstrip(": "), self._steps)
        if self._bar is not None:
            with _unheard:
                self._bar.total, self._bar.n = self._steps, self._done
                if what:
                    self._bar.set_postfix_str(what, refresh=False)
                self._bar.refresh()
        return self._bar is not None


class Follower:
    """Shows the progress of another process's build from the lines of its log."""

    def __init__(self, reporter: Reporter, log: Path) -> None:
        self._reporter, self._log = reporter, log
        self._read = 0  # how many bytes of the log were passed on

    def look(self) -> None:
        """Pass on what the log has by now; there may be none yet."""
        with suppress(OSError), self._log.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._read:  # the log is another build's
                self._reporter.close()
                self._read = 0
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):  # or the rest is not written yet
                    self._read += len(line)
                    self._reporter.line(line.decode(errors="replace").rstrip("\r\n"))
        self._reporter.tick()


def many(count: int, word: str) -> str:
    """A count with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def plain(text: str) -> str:
    """What a tool printed, without colours."""
    return re.sub(_COLOURS, "", text)


def compiled_file(command: str) -> str:
    """The file that a command compiles; empty for another command."""
    compiled = re.search(_COMPILED, command)
    return _unquoted(compiled[1]) if compiled else ""


def _unquoted(word: str) -> str:
    return word.strip("'\"")


def source_name(file: str, target: str) -> str:
    """A source's name, with its folders if the object's name says that two sources have it."""
    shared = re.search(r".\.[0-9a-f]{20}(?:\.cuda)?\.o$", target)
    return Path(*Path(file).parts[-3 if shared else -1 :]).as_posix()


def _print(text: str) -> None:
    """Print one line above all bars, the user's too."""
    if sys.stderr is None:  # the program has no console
        return
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    with _unheard:
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        if tqdm:
            tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


def _open_bar(title: str, total: int) -> Any:
    """A bar in a notebook or on a terminal; None elsewhere."""
    notebook = type(sys.stderr).__module__ == "ipykernel.iostream"
    with _unheard:
        if notebook and find_spec("ipywidgets"):
            from tqdm.notebook import tqdm
        elif notebook or sys.stderr.isatty():
            from tqdm.std import tqdm
        else:
            return None
        return tqdm(desc=title, total=total, bar_format=_BAR, leave=False, file=sys.stderr)
    return None
