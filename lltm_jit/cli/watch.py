"""``watch [NAME...] [-- command]``: rebuild when a source is saved; then run the command anew."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from lltm_jit import native
from lltm_jit.jit import LltmJitError
from lltm_jit.jit.compile.process import descendants
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.loading.parallel import build_all
from lltm_jit.jit.loading.reload import Reload
from lltm_jit.jit.loading.watch import say, watch
from lltm_jit.jit.request.spec import folders_below
from lltm_jit.jit.store.lock import has_ended
from lltm_jit.jit.user.cancel import Cancelled, cancelled_by

from . import _extensions

_PATIENCE = 3.0  # seconds that a command has to end when it is told to
_AT_MOST = 10.0  # seconds that a killed one needs to end


EXAMPLES = """\
examples:
  {prog} watch                          basic and rnn
  {prog} watch kernels/ -- pytest -x    an extension of yours, with its tests

The command after -- runs after each build. Ctrl-C stops watching."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    parser.usage = "%(prog)s [-h] [NAME ...] [-- command ...]"


def run(args: argparse.Namespace) -> int:
    program = Program(args.program)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    builds = Builds(_extensions.chosen(args.names))
    folders = builds.folders()
    starts = tuple(os.path.join(top, "") for top in folders)
    tops = sorted(place for place in folders if not place.startswith(starts))
    try:
        with watch(builds.folders, builds.make_again, lambda done: tell_and_run(done, program)):
            say(f"watching {', '.join(tops)}; Ctrl-C stops it")
            with suppress(Cancelled), cancelled_by(builds.saved):
                try:
                    builds.make()
                except LltmJitError as error:  # the user fixes and saves it
                    print(error, file=sys.stderr)
                program.run()
            threading.Event().wait()
    except KeyboardInterrupt:
        program.stop()
    return 0


class Builds:
    """The builds that the watch keeps up to date. They are not loaded: the command does that."""

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._extensions = extensions
        self._current: dict[str, str] = {}  # the key of each extension
        self._turn = threading.Lock()
        self.saved = threading.Event()  # what cancels the first build

    def folders(self) -> set[str]:
        """Where the sources lie."""
        kernels = native.kernels_directory()
        return {
            place
            for each in self._extensions
            for place in (folders_below(kernels) if each.packaged else each.directories())
        }

    def make_again(self) -> Reload:
        """Build what was saved; cancel the first build if it is still running."""
        self.saved.set()
        return self.make()

    def make(self) -> Reload:
        """Build what changed."""
        began = time.perf_counter()
        with self._turn:
            infos = build_all(self._extensions)
            changed = [info for info in infos if self._current.get(info.name) != info.key]
            self._current = {info.name: info.key for info in infos}
        told = {f"{info.name} as before" if info.cached else info.reason for info in changed}
        return Reload((), tuple(sorted(told)), time.perf_counter() - began)


class Program:
    """The command that is run after each build, once at a time."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._turn = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it; the run before, where it is not over yet, has nothing new to tell."""
        if not self.words:
            return
        with self._turn:
            self.stop()
            try:
                self.process = subprocess.Popen(self.words)
            except OSError as error:
                say(f"cannot run {self.words[0]}: {error.strerror}")

    def stop(self) -> None:
        """End it, and what it has started, as a shell does."""
        if self.process is None or self.process.poll() is not None:
            return
        started = descendants(self.process.pid)
        for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, _AT_MOST)):
            until = time.monotonic() + patience
            for pid in filter(_runs, started):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while any(map(_runs, started)) and time.monotonic() < until:
                self.process.poll()
                time.sleep(0.02)
        self.process.wait()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not has_ended(pid)


def tell_and_run(done: Reload, program: Program) -> None:
    say(f"{', '.join(done.changed)}; new kernels after {done.seconds:.1f} s")
    program.run()
