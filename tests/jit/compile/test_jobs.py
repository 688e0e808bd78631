"""How many compilers run at a time."""

import os
import threading
import time

import pytest
from harness import ALL, Gate, finish, wait_for

from lltm_jit import jit
from lltm_jit.jit.compile import jobs
from lltm_jit.jit.loading import engine
from lltm_jit.jit.user.errors import Cancelled, cancelled_by


def at_a_time(gates: list[Gate], expected: int) -> int:
    """How many compilers run, once these are there and no more are started."""

    def there() -> int:
        return sum(gate.path.exists() for gate in gates)

    wait_for(lambda: there() >= expected)
    if expected < len(gates):
        time.sleep(0.5)
    count = there()
    for gate in gates:
        gate.open()
    return count


@pytest.mark.parametrize(("limit", "expected"), [("2", 2), ("0", 5)])
def test_a_build_keeps_to_max_jobs(bench, limit, expected):
    """A limit of 0 is none, as it is for torch."""
    gates = bench.gates("one/one", "two/two", "three", "four", "five")
    process = bench.start(MAX_JOBS=limit)
    assert at_a_time(gates, expected) == expected
    assert finish(process)["compiled"] == 5


def test_what_reads_most_is_compiled_first(bench, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "1")
    bench.write("core/long.h", "long\n" * 100)
    bench.write("zero/zero.cpp", '#include "core/long.h"\n')
    bench.load()
    assert bench.in_order == ["compile zero.cpp", *ALL]


def test_builds_share_a_pool_of_compilers(bench, monkeypatch):
    """With one compiler at a time, all files of two builds wait for it."""
    monkeypatch.setenv("MAX_JOBS", "1")
    gates = bench.gates("build_0/0", "build_1/1", "build_0/2", "build_1/3")
    specs = [jit.Spec("_C", (str(bench.sources / f"build_{number}"),)) for number in range(2)]
    builds = []
    loading = threading.Thread(target=lambda: builds.extend(engine.load_all(specs)))
    loading.start()
    assert at_a_time(gates, 1) == 1
    loading.join()
    assert [build.info.compiled for build in builds] == [2, 2]


def test_a_share_of_the_pool():
    """Each build gets what it wants of what is free, and one that finds nothing free waits."""
    shares = []

    def take_two() -> None:
        with jobs.compilers(4, 2) as share:
            shares.append(share)

    with jobs.compilers(4, 9) as first:
        assert first == 4
        unwanted = threading.Event()
        unwanted.set()
        with cancelled_by(unwanted), pytest.raises(Cancelled):
            jobs.compilers(4, 1).__enter__()
    with jobs.compilers(4, 1) as first, jobs.compilers(4, 9) as second:
        assert (first, second) == (1, 3)
        waiting = threading.Thread(target=take_two)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        if not (child := os.fork()):  # which has neither the builds nor what they took
            os._exit(jobs._taken)
        assert os.waitpid(child, 0)[1] == 0
    waiting.join(60)
    assert shares == [2]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose /proc and /sys are texts."""
    monkeypatch.delenv("MAX_JOBS", raising=False)
    files: dict[str, str] = {"/proc/self/cgroup": "0::/box\n"}
    monkeypatch.setattr(jobs.texts, "read", lambda path: files.get(str(path), ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    files["/proc/meminfo"] = f"MemAvailable: {64 << 20} kB\n"
    return files


BOX, CPU, MEMORY = (f"/sys/fs/cgroup/{name}" for name in ("box", "cpu,cpuacct", "memory"))
CACHED = {f"{BOX}/memory.stat": f"anon 1\ninactive_file {2 << 30}\n"}
USED = {f"{BOX}/memory.max": f"{6 << 30}\n", f"{BOX}/memory.current": f"{4 << 30}\n"}
OLDER = {"/proc/self/cgroup": "3:memory:/box/in\n2:cpu,cpuacct:/box\n1:pids:/box\n"}
OLD_CPU = {f"{CPU}/cpu.cfs_quota_us": "500000\n", f"{CPU}/cpu.cfs_period_us": "100000\n"}
OLD_MEMORY = {
    f"{MEMORY}/box/memory.limit_in_bytes": f"{6 << 30}\n",
    f"{MEMORY}/box/memory.usage_in_bytes": "0\n",
}
LIMITS = {
    "affinity": ({}, 16, 16),
    "memory": ({"/proc/meminfo": f"MemTotal: 99999999\nMemAvailable: {11 << 20} kB\n"}, 5, 2),
    "the cgroup's quota": ({f"{BOX}/cpu.max": "350000 100000\n"}, 3, 3),
    "the cgroup's memory": (USED | CACHED, 2, 1),
    "no limit of the cgroup": ({f"{BOX}/memory.max": "max\n", f"{BOX}/cpu.max": "max 1\n"}, 16, 16),
    "a quota of version 1": (OLDER | OLD_CPU, 5, 5),
    "memory of version 1": (OLDER | OLD_MEMORY, 3, 1),
}


@pytest.mark.parametrize(("texts", "host", "cuda"), LIMITS.values(), ids=LIMITS)
def test_jobs_by_what_the_machine_has(machine, texts, host, cuda):
    machine.update(texts)
    assert (jobs.job_count(with_cuda=False), jobs.job_count(with_cuda=True)) == (host, cuda)


def test_jobs_as_given(machine, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "40")
    assert jobs.job_count(with_cuda=True) == 40
    monkeypatch.setenv("MAX_JOBS", "1000000")
    assert jobs.job_count(with_cuda=True) == jobs.job_count(with_cuda=False) <= 4096  # fit a pipe
    monkeypatch.setenv("MAX_JOBS", "many")
    told = "MAX_JOBS to be a positive integer or 0, but got 'many'"
    with pytest.raises(jit.ToolchainError, match=told):
        jobs.job_count(with_cuda=True)
