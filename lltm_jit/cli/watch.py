"""``watch``: rebuild on every save, and run a command after each build.

examples:
  python -m lltm_jit watch                          basic and rnn
  python -m lltm_jit watch kernels/ -- pytest -x    an extension of yours, with its tests

The command after -- runs after each build. Ctrl-C stops watching.
"""

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from lltm_jit import native
from lltm_jit.jit import LltmJitError, Spec
from lltm_jit.jit.compile.guard import end_session
from lltm_jit.jit.loading import engine
from lltm_jit.jit.loading.reload import Reload
from lltm_jit.jit.loading.watch import say, watch
from lltm_jit.jit.request.spec import folders_below

from . import _extensions

_PATIENCE = 3.0  # seconds that a command has to end after the signal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    parser.usage = "%(prog)s [-h] [NAME ...] [-- command ...]"


def run(args: argparse.Namespace) -> int:
    program, builds = Program(args.program), Builds(_extensions.chosen(args.names))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does

    def tell_and_run(done: Reload) -> None:
        say(f"{', '.join(done.changed)}; new kernels after {done.seconds:.1f} s")
        program.run()

    try:
        with watch(builds.folders, builds.make, tell_and_run):
            say(f"watching {builds}; Ctrl-C stops it")
            try:
                builds.make()
            except LltmJitError as error:  # the user fixes and saves it
                print(error, file=sys.stderr)
            program.run()
            while True:  # short waits, because a signal that another thread gets ends no wait
                time.sleep(0.1)
    except KeyboardInterrupt:
        program.stop()
    return 0


class Builds:
    """The builds that the watch keeps up to date. Only the command loads them."""

    def __init__(self, extensions: Sequence[Spec]) -> None:
        self._extensions = extensions
        self._current: dict[str, str] = {}  # the key of each extension
        self._turn = threading.Lock()

    def __str__(self) -> str:
        return ", ".join(each.name for each in self._extensions)

    def folders(self) -> set[str]:
        """The folders of the sources."""
        theirs = [engine.folders(each) for each in self._extensions if not each.ours]
        ours = any(each.ours for each in self._extensions)
        return set(folders_below(native.kernels_directory()) if ours else ()).union(*theirs)

    def make(self) -> Reload:
        """Build what changed. A save during the first build is built after it."""
        began = time.perf_counter()
        with self._turn:
            infos = engine.build_all(self._extensions)
            changed = [info for info in infos if self._current.get(info.name) != info.key]
            self._current = {info.name: info.key for info in infos}
        told = {f"{info.name} as before" if info.cached else info.reason for info in changed}
        return Reload((), tuple(sorted(told)), time.perf_counter() - began)


class Program:
    """The command that runs after each build: one process at a time, in its own session."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._turn = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start the command, and end the previous run, whose result would be stale."""
        with self._turn:
            self.stop()
            try:
                if self._words:
                    self.process = subprocess.Popen(self._words, start_new_session=True)
            except OSError as error:
                say(f"cannot run {self._words[0]}: {error.strerror}")

    def stop(self) -> None:
        """End the command, and the processes that it has started."""
        if self.process is not None and self.process.poll() is None:
            end_session(self.process.pid)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
            self.process.kill()
            self.process.wait()
