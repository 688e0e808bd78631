"""How many compilers may run at a time."""

from __future__ import annotations

import os
from pathlib import Path

from . import knobs

GIBIBYTE = 1 << 30
_MEMORY_PER_JOB = {"C++": 2 * GIBIBYTE, "CUDA": 4 * GIBIBYTE}


def job_count(with_cuda: bool) -> int:
    """MAX_JOBS, else the least of the CPUs this process may use and the jobs that memory allows."""
    given = knobs.count("MAX_JOBS")
    if given is not None:
        return given
    limits = [
        cpu_count(),
        max(1, available_memory() // _MEMORY_PER_JOB["CUDA" if with_cuda else "C++"]),
    ]
    return max(1, min(limits))


def cpu_count() -> int:
    """CPUs by affinity and by the cgroup's quota."""
    affinity = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota = _cgroup_cpus()
    return max(1, min(affinity, int(quota))) if quota else affinity


def available_memory() -> int:
    """Bytes that can be used without swapping, by the system and by the cgroup."""
    limits = [limit for limit in (_system_memory(), _cgroup_memory()) if limit is not None]
    return min(limits, default=1 << 62)


def _system_memory() -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_directories() -> list[Path]:
    """The cgroup of this process and those above it (version 2), or the mounts of version 1."""
    found = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            here = Path("/sys/fs/cgroup") / path.lstrip("/")
            found += [
                here,
                *(parent for parent in here.parents if parent.is_relative_to("/sys/fs/cgroup")),
            ]
        elif controllers in ("memory", "cpu,cpuacct", "cpu"):
            found += [
                Path("/sys/fs/cgroup") / controllers / path.lstrip("/"),
                Path("/sys/fs/cgroup") / controllers,
            ]
    return found


def _cgroup_cpus() -> float | None:
    quotas = []
    for directory in _cgroup_directories():
        quota, _, period = _read(directory / "cpu.max").strip().partition(" ")
        if not quota:  # version 1
            quota = _read(directory / "cpu.cfs_quota_us").strip()
            period = _read(directory / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return max(1.0, min(quotas)) if quotas else None


def _cgroup_memory() -> int | None:
    free = []
    for directory in _cgroup_directories():
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = (
                _read(directory / limit_name).strip(),
                _read(directory / used_name).strip(),
            )
            if limit.isdecimal() and used.isdecimal():
                free.append(max(0, int(limit) - int(used) + _reclaimable(directory)))
    return min(free, default=None)


def _reclaimable(directory: Path) -> int:
    """File cache counts as used in a cgroup, though it is given back under pressure."""
    for line in _read(directory / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
