"""One pool of compilers for all builds of this process, however many run at a time.

It is a jobserver as make has one: a pipe with a token for each compiler that may run. ninja takes
part in it from 1.13 on; with an older one, the builds of a process take turns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from . import cancel

_OLDEST_NINJA = (1, 13)
_TOKEN = b"+"

_lock = threading.Lock()
_turn = threading.Lock()
_server: _Jobserver | None = None


class _Jobserver:
    """A named pipe full of tokens, there as long as a build uses it."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.users = 0
        self.directory = tempfile.mkdtemp(prefix="lltm_jit-jobs-")
        self.path = os.path.join(self.directory, "tokens")
        os.mkfifo(self.path, 0o600)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        os.write(self.descriptor, _TOKEN * jobs)

    def take(self) -> None:
        """Wait for a token: each ninja may run one compiler before it asks for more."""
        while True:
            cancel.check()
            with suppress(BlockingIOError):
                os.read(self.descriptor, 1)
                return
            time.sleep(0.05)

    def close(self) -> None:
        os.close(self.descriptor)
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def compilers(ninja: Path, jobs: int) -> Iterator[dict[str, str]]:
    """Take part in the pool, which has ``jobs`` compilers if this build is the first in it.

    Yields the variables that tell ninja. Without a jobserver it is ``MAX_JOBS``, which torch hands
    on to ninja as ``-j``, for which ninja would leave a jobserver alone.
    """
    if not _takes_part(str(ninja)):
        while not _turn.acquire(timeout=0.05):
            cancel.check()
        try:
            yield {"MAX_JOBS": str(jobs)}
        finally:
            _turn.release()
        return
    server = _enter(jobs)
    try:
        server.take()
        try:
            yield {"MAKEFLAGS": f" -j{server.jobs} --jobserver-auth=fifo:{server.path}"}
        finally:
            os.write(server.descriptor, _TOKEN)
    finally:
        _leave(server)


def _enter(jobs: int) -> _Jobserver:
    global _server
    with _lock:
        if _server is None:
            _server = _Jobserver(jobs)
        _server.users += 1
        return _server


def _leave(server: _Jobserver) -> None:
    """The last one out takes the pipe away: tokens that a killed ninja held are not missed."""
    global _server
    with _lock:
        server.users -= 1
        if server.users == 0:
            server.close()
            if server is _server:
                _server = None


@cache
def _takes_part(ninja: str) -> bool:
    if not hasattr(os, "mkfifo"):
        return False
    try:
        done = subprocess.run([ninja, "--version"], capture_output=True, text=True)
        major, minor = done.stdout.split(".")[:2]
        return (int(major), int(minor)) >= _OLDEST_NINJA
    except (OSError, ValueError):
        return False


def _forget() -> None:
    """A forked child has neither the builds nor their pool."""
    global _server, _lock, _turn
    _server, _lock, _turn = None, threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
