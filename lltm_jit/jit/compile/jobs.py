"""How many compilers may run at a time, over all builds of this process.

They share a jobserver like that of make: a pipe with a token for each compiler that may run. ninja
supports this from version 1.13 on; with an older one, or where it may not open the pipe in /proc,
the builds of a process take turns.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ..machine.tools import output_of
from ..user import cancel, settings
from ..user.progress import many

GIBIBYTE = 1 << 30
_MEMORY_FILES = (  # of a cgroup: the limit, and what is used
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_OLDEST_NINJA = (1, 13)
_OPEN_FILES = "/proc/{}/fd"
_TOKEN = b"+"
_UNLIMITED = 4096  # jobs, whose tokens fit into a pipe

_lock = threading.Lock()
_turn = threading.Lock()
_server: _Jobserver | None = None


def job_count(with_cuda: bool) -> int:
    """MAX_JOBS, else as many as this process may use CPUs, if memory allows that many.

    As with torch, there is no limit if MAX_JOBS is 0.
    """
    given = settings.count("MAX_JOBS")
    return fitting_jobs(with_cuda) if given is None else min(given or _UNLIMITED, _UNLIMITED)


def fitting_jobs(with_cuda: bool) -> int:
    """As many as there are CPUs and memory for."""
    return max(1, min(cpu_count(), available_memory() // memory_of_job(with_cuda)))


def memory_of_job(with_cuda: bool) -> int:
    """The bytes that a compiler may take."""
    return (4 if with_cuda else 2) * GIBIBYTE


def in_words(jobs: int) -> str:
    """A number of jobs, for messages."""
    return "any number of jobs" if jobs == _UNLIMITED else many(jobs, "job")


def cpu_count() -> int:
    """CPUs by affinity and by the cgroup's quota."""
    return max(1, int(min([len(os.sched_getaffinity(0)), *_cgroup_cpus()])))


def available_memory() -> int:
    """Bytes that can be used without swapping, by the system and by the cgroup."""
    kilobytes = _number(Path("/proc/meminfo"), "MemAvailable:")
    return min([1 << 62 if kilobytes is None else kilobytes * 1024, *_cgroup_memory()])


def _cgroup_directories() -> list[Path]:
    """The cgroup of this process and those above it, of version 2 or those of version 1."""
    found = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory", "cpu,cpuacct", "cpu"):
            top = Path("/sys/fs/cgroup") / controllers
            here = top / path.lstrip("/")
            found += [each for each in (here, *here.parents) if each.is_relative_to(top)]
    return found


def _cgroup_cpus() -> list[float]:
    quotas = []
    for directory in _cgroup_directories():
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:  # version 1
            quota, period = (
                _read(directory / f"cpu.cfs_{kind}_us") for kind in ("quota", "period")
            )
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return quotas


def _cgroup_memory() -> list[int]:
    free = []
    for directory in _cgroup_directories():
        for names in _MEMORY_FILES:
            limit, used = (_read(directory / name) for name in names)
            if limit.isdecimal() and used.isdecimal():
                # The file cache counts as used, but is released under memory pressure.
                cached = _number(directory / "memory.stat", "inactive_file", "total_inactive_file")
                free.append(max(0, int(limit) - int(used) + (cached or 0)))
    return free


def _number(path: Path, *names: str) -> int | None:
    """The number that a file has behind the first of these names."""
    for name, value in re.findall(r"(?m)^(\S+)\s+(\d+)", _read(path)):
        if name in names:
            return int(value)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


class _Jobserver:
    """A pipe full of tokens, which exists as long as a build uses it."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.users = 0
        self._tokens, self._back = os.pipe()
        os.set_blocking(self._tokens, False)
        # ninja opens it there, and nothing is left of it when this process is killed.
        self.path = f"{_OPEN_FILES.format(os.getpid())}/{self._tokens}"
        self.give(jobs)

    def give(self, tokens: int = 1) -> None:
        """Put tokens into the pipe."""
        os.write(self._back, _TOKEN * tokens)

    def take(self) -> None:
        """Wait for a token; each ninja may run one compiler without one."""
        while True:
            cancel.check()
            with suppress(BlockingIOError):
                os.read(self._tokens, 1)
                return
            time.sleep(0.05)

    def close(self) -> None:
        os.close(self._tokens)
        os.close(self._back)


@contextmanager
def compilers(ninja: Path, jobs: int) -> Iterator[dict[str, str]]:
    """Take part in the pool, which has ``jobs`` compilers if this build is the first in it.

    Yields the variables for ninja. Without a jobserver that is ``MAX_JOBS``, which torch passes to
    ninja as ``-j``; with ``-j``, ninja would ignore a jobserver.
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
            server.give()
    finally:
        _leave(server)


def is_shared() -> bool:
    """Whether several builds of this process are under way."""
    with _lock:
        return _server is not None and _server.users > 1


def _enter(jobs: int) -> _Jobserver:
    global _server
    with _lock:
        if _server is None:
            _server = _Jobserver(jobs)
        _server.users += 1
        return _server


def _leave(server: _Jobserver) -> None:
    """The last build closes the pipe, so that tokens held by a killed ninja are not lost."""
    global _server
    with _lock:
        server.users -= 1
        if server.users == 0:
            server.close()
            if server is _server:
                _server = None


@cache
def _takes_part(ninja: str) -> bool:
    trial = _Jobserver(1)
    try:
        # By another process: it may not, where this one gave up root's rights or has capabilities.
        said = output_of(f": >>{trial.path} && {shlex.quote(ninja)} --version")
    finally:
        trial.close()
    version = re.match(r"(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= _OLDEST_NINJA


def _forget() -> None:
    """A forked child has neither the builds nor their pool."""
    global _server, _lock, _turn
    _server, _lock, _turn = None, threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_forget)
