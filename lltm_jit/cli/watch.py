"""``watch [-- command]``: rebuild when a source is saved; then run the command anew."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading

from lltm_jit import native
from lltm_jit.jit import LltmJitError
from lltm_jit.jit.reload import Reload
from lltm_jit.jit.watch import watch

_PATIENCE = 3.0  # seconds that a command has to end when it is told to
_turn = threading.Lock()  # a save during the first build waits for its end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program",
        nargs="*",
        metavar="command",
        help="run after each build, in place of one that still runs; put -- before it",
    )


def run(args: argparse.Namespace) -> int:
    program = Program(args.program)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    directory = native.kernels_directory()
    try:
        with watch([directory], reload_in_turn, lambda done: tell_and_run(done, program)):
            say(f"watching {directory}; Ctrl-C ends it")
            first_build()
            program.run()
            threading.Event().wait()
    except KeyboardInterrupt:
        program.stop()
    return 0


def reload_in_turn() -> Reload:
    """Build what changed, at first all that an import loads, and put it into force."""
    with _turn:
        return native.reload()


class Program:
    """The command that is run after each build, once at a time."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it; the run before, where it is not over yet, has nothing new to tell."""
        self.stop()
        if not self.words:
            return
        try:
            self.process = subprocess.Popen(self.words)
        except OSError as error:
            say(f"cannot run {self.words[0]}: {error.strerror}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def first_build() -> None:
    try:
        reload_in_turn()
    except LltmJitError as error:  # to be mended and saved: that is what the watch is for
        print(error, file=sys.stderr)


def tell_and_run(done: Reload, program: Program) -> None:
    say(f"{', '.join(done.changed)}; new kernels after {done.seconds:.1f} s")
    program.run()


def say(text: str) -> None:
    print(f"lltm_jit: {text}", file=sys.stderr, flush=True)
