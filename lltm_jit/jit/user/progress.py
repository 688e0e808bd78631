"""What the user sees of a build: why it is needed, how far it is, how long it took.

All of it goes to standard error: a progress bar on a terminal, a widget in a notebook, else plain
lines. Only the first process of a node prints; the others of a job would print the same.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from . import settings

STEP = r"\[(\d+)/(\d+) \d+\.\d+\] (.*)"
FAILED = "FAILED: "  # how ninja begins the line after a failed step's
# Lines of torch and ninja that the engine replaces by its own: they do not know its pool of jobs,
# see no GPU, and load nothing.
_KNOWN = (
    "Emitting ninja build file|Building extension module|Jobserver mode|Loading extension module"
    "|No CUDA runtime is found|ninja: build stopped"
)
_COMPILED = r"\s-c\s+(.+?)\s+-o\s"
_TARGET = r"\s-o\s+(\S+)"


class Reporter:
    """Prints the progress of one build. ``compiled`` counts the sources that were compiled.

    Args:
        verbose: print every step; by default as LLTM_JIT_VERBOSE says.
        label: the prefix of each line, if several builds print.
    """

    def __init__(self, verbose: bool | None = None, label: str = "") -> None:
        self._label = f"{label}: " if label else ""
        self._title = label
        self._steps = 0
        self._done = 0
        self.verbose = settings.flag("LLTM_JIT_VERBOSE") if verbose is None else verbose
        self.quiet = settings.flag("LLTM_JIT_QUIET") or os.environ.get("LOCAL_RANK", "0") != "0"
        self.compiled = 0
        # Seconds between looks at what runs. ninja tells only ends, and who wants each start wants
        # those of the links too, which are over in no time.
        self.pause = 0.02 if self.verbose else 0.25
        self._bar: Any = None
        self._started: dict[str, float] = {}  # when each target began, if that was seen
        self._looked = time.monotonic()
        self._timed = True  # whether it is known when each step begins
        self._step: tuple[str, float] | None = None  # what ended, and in how many seconds
        self._failed_command = ""

    def say(self, text: str) -> None:
        """Print one line, unless quiet."""
        if not self.quiet:
            self._print(f"lltm_jit: {text}")

    def detail(self, text: str) -> None:
        """Print one line, in verbose mode."""
        if self.verbose:
            self.say(text)

    def report(self, text: str) -> None:
        """Print one line about this reporter's build."""
        self.say(f"{self._label}{text}")

    def start(self, steps: int, timed: bool = True, title: str = "") -> None:
        """A build with this many steps starts."""
        self._title = title or self._title
        self._steps, self._done, self.compiled, self._timed = steps, 0, 0, timed
        self._started, self._looked = {}, time.monotonic()
        self._open_bar()

    def _open_bar(self) -> None:
        if self._bar is not None or not self._steps:
            return
        if self.quiet or self.verbose or not _can_print():
            return
        if "ipykernel" in sys.modules and find_spec("ipywidgets"):
            from tqdm.notebook import tqdm
        elif hasattr(sys.stderr, "isatty") and sys.stderr.isatty():  # it may be a stand-in
            from tqdm.std import tqdm
        else:
            return
        form = (
            "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
        )
        self._bar = tqdm(
            total=self._steps,
            initial=self._done,
            desc=f"lltm_jit: {self._title}".rstrip(": "),
            bar_format=form,
            leave=False,
            file=sys.stderr,
        )

    def line(self, line: str) -> None:
        """Take one line of the build's output."""
        if step := re.match(STEP, line):
            self._tell_end()
            self._end_step(int(step[1]), int(step[2]), step[3])
        elif line.startswith(FAILED):
            self._tell_end(failed=True)
        elif line != self._failed_command and not re.search(_KNOWN, line):  # which ninja repeats
            self._tell_end()
            self.detail(line)

    def _end_step(self, done: int, steps: int, command: str) -> None:
        self._done, self._steps, self._failed_command = done, steps, command
        source = _source_of(command)
        self.compiled += bool(source)
        self._tell_start(command)  # if it was over before anybody looked
        now = time.monotonic()
        self._step = (source or "link", now - self._started.get(_target_of(command), now))
        self._looked = now

    def _tell_end(self, failed: bool = False) -> None:
        """Report the step that ended; the line after it says whether it failed."""
        if self._step is None:
            return
        (what, seconds), self._step = self._step, None
        how = "failed " if failed else ""
        if self._bar is not None:
            self._bar.total = self._steps
            self._bar.set_postfix_str(f"{what} {how}".rstrip(), refresh=False)
            self._bar.n = self._done
            self._bar.refresh()
        else:
            took = f"({seconds:.1f} s)" if self._timed else ""
            self.report(f"[{self._done}/{self._steps}] {what} {how}{took}".rstrip())

    def tick(self, running: list[str]) -> None:
        """Show that time passes while the compilers are silent, and what they are doing."""
        self._tell_end()
        for command in running:
            self._tell_start(command)
        self._looked = time.monotonic()
        self._open_bar()
        if self._bar is not None:
            names = [_source_of(command) for command in running]
            if any(names):
                self._bar.set_postfix_str(" ".join(name for name in names if name), refresh=False)
            self._bar.refresh()

    def _tell_start(self, command: str) -> None:
        # By what it makes, for the system shows a command without its quotes.
        target = _target_of(command)
        if target and target not in self._started:
            self._started[target] = self._looked
            self.detail(f"started {command}")

    def close(self) -> None:
        """Remove the bar; the result line follows."""
        self._tell_end()
        self._steps = 0
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _print(self, text: str) -> None:
        # A full disk, a closed pipe: the build goes on unheard. Or a stream that can only write.
        with suppress(OSError, AttributeError):
            if not _can_print():
                return
            if tqdm := getattr(sys.modules.get("tqdm"), "tqdm", None):
                tqdm.write(text, file=sys.stderr)  # above all bars, the user's too
            else:
                print(text, file=sys.stderr, flush=True)


class Follower:
    """Shows the progress of a build that another process makes, as its log tells."""

    def __init__(self, reporter: Reporter, log: Path) -> None:
        self._reporter, self._log = reporter, log
        self._file: IO[str] | None = None

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self) -> None:
        """Pass on what the log has by now."""
        if self._file is None:
            with suppress(OSError):  # the build has just begun, or ended
                self._file = self._log.open(encoding="utf-8", errors="replace")
                self._reporter.start(0, timed=False)
        for line in self._file or ():
            self._reporter.line(line.rstrip("\n"))
        self._reporter.tick([])

    def close(self) -> None:
        """The wait is over."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._reporter.close()


def many(count: int, word: str) -> str:
    """A count with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _can_print() -> bool:
    """Whether there is an open standard error; a program without a console may have none."""
    return sys.stderr is not None and not getattr(sys.stderr, "closed", False)


def compiled_file(command: str) -> str:
    """The file that a command compiles; empty for another command."""
    found = re.search(_COMPILED, command)
    return found[1].strip("'\"") if found else ""


def _target_of(command: str) -> str:
    found = re.search(_TARGET, command)
    return found[1] if found else ""


def _source_of(command: str) -> str:
    file = compiled_file(command)
    return source_name(file, _target_of(command)) if file else ""


def source_name(file: str, target: str) -> str:
    """A source's name; with its folders where the object's says that another source has it too."""
    shared = re.search(r".\.[0-9a-f]{20}(?:\.cuda)?\.o$", target)
    return Path(*Path(file).parts[-3 if shared else -1 :]).as_posix()
