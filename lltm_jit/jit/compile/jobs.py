"""How many compilers may run at a time, over all builds of this process."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..request import texts
from ..user import settings
from ..user.errors import check_wanted
from ..user.progress import many

GIBIBYTE = 1 << 30
_MEMORY_FILES = (  # a cgroup's files for its memory limit and its use
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_UNLIMITED = 4096  # jobs


def job_count(with_cuda: bool) -> int:
    """MAX_JOBS, else the number of CPUs that this process may use, or fewer if memory is short.

    As with torch, there is no limit if MAX_JOBS is 0.
    """
    given = settings.count("MAX_JOBS")
    return fitting_jobs(with_cuda) if given is None else min(given or _UNLIMITED, _UNLIMITED)


def fitting_jobs(with_cuda: bool) -> int:
    """The number of jobs for which there are CPUs and memory."""
    return max(1, min(cpu_count(), available_memory() // memory_of_job(with_cuda)))


def memory_of_job(with_cuda: bool) -> int:
    """The bytes that a compiler may take."""
    return (4 if with_cuda else 2) * GIBIBYTE


def in_words(jobs: int) -> str:
    """A number of jobs, for messages."""
    return "any number of jobs" if jobs == _UNLIMITED else many(jobs, "job")


def cpu_count() -> int:
    """The CPUs that the affinity and the quotas of cgroups allow."""
    counts: list[float] = [len(os.sched_getaffinity(0))]
    for directory in _cgroups():
        quota, _, period = texts.read(directory / "cpu.max").strip().partition(" ")
        if not quota:  # version 1
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = (texts.read(directory / name).strip() for name in names)
        if quota.isdecimal() and period.isdecimal() and int(period):
            counts.append(int(quota) / int(period))
    return max(1, int(min(counts)))


def available_memory() -> int:
    """Bytes that can be used without swapping, by the system and by the cgroups."""
    kilobytes = _number(Path("/proc/meminfo"), "MemAvailable:")
    free = [1 << 62 if kilobytes is None else kilobytes * 1024]
    for directory in _cgroups():
        for names in _MEMORY_FILES:
            limit, used = (texts.read(directory / name).strip() for name in names)
            if limit.isdecimal() and used.isdecimal():
                # The file cache counts as used, but is released under memory pressure.
                cached = _number(directory / "memory.stat", "inactive_file", "total_inactive_file")
                free.append(max(0, int(limit) - int(used) + (cached or 0)))
    return min(free)


def _cgroups() -> list[Path]:
    """The cgroups of this process and their parents, of version 1 or version 2."""
    found = []
    for line in texts.read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory", "cpu,cpuacct", "cpu"):
            top = Path("/sys/fs/cgroup") / controllers
            here = top / path.lstrip("/")
            found += [each for each in (here, *here.parents) if each.is_relative_to(top)]
    return found


def _number(path: Path, *names: str) -> int | None:
    """The first number in a file that follows one of these names."""
    for name, value in re.findall(r"(?m)^(\S+)\s+(\d+)", texts.read(path)):
        if name in names:
            return int(value)
    return None


_changed = threading.Condition()
_taken = 0  # compilers that the builds of this process run


@contextmanager
def compilers(jobs: int, wanted: int) -> Iterator[int]:
    """Take as many of this process's ``jobs`` compilers as are wanted and free, at least one."""
    global _taken
    mine = 0
    try:
        with _changed:
            while _taken >= jobs:
                check_wanted()
                _changed.wait(0.05)
            mine = max(1, min(wanted, jobs - _taken))
            _taken += mine
        yield mine
    finally:
        with _changed:
            _taken -= mine
            _changed.notify_all()


def _forget() -> None:
    """A forked child runs none of the builds, and its copy of the lock may never be released."""
    global _changed, _taken
    _changed, _taken = threading.Condition(), 0


os.register_at_fork(after_in_child=_forget)
