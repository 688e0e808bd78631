"""What is removed when the cache is larger than its limit."""

import gc
import os
import shutil
import time
from pathlib import Path

import pytest
from harness import TEXT

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache, lock, retention


@pytest.fixture
def old_builds(bench):
    """The keys of four builds and all that belongs to them, used some hours ago."""
    keys = []
    for text in "abcd":
        bench.write("two/two.cpp", text)
        keys.append(engine.build(bench.spec()).key)
    for path in sorted(bench.builds.rglob("*")):
        age(path, 30)
    for hours, key in zip((29, 28, 27, 26), keys, strict=True):
        age(bench.builds / key / "ok.json", hours)
    return keys


def age(path: Path, hours: float) -> None:
    os.utime(path, (time.time() - 3600 * hours,) * 2)


def left(bench) -> set[str]:
    return {path.parent.name for path in bench.records}


def test_what_was_not_used_for_longest_goes_first(bench, old_builds):
    size = sum(entry.size for entry in retention.entries())
    retention.prune(size)
    assert left(bench) == {*old_builds}
    bench.write("two/two.cpp", "a")
    assert engine.build(bench.spec()).cached  # the oldest is in use now
    kinds = {entry.kind for entry, why in retention.prune(size - 1) if not why}
    assert kinds <= {"work", "object"}  # nobody has used these for longer
    builds = [entry for entry in retention.entries() if entry.kind == "build"]
    rest = sum(entry.size for entry in builds)
    retention.prune(rest - min(entry.size for entry in builds) // 2)
    assert left(bench) == {old_builds[0], *old_builds[2:]}
    retention.prune(0)
    assert left(bench) == {old_builds[0]}  # used within an hour


@pytest.mark.parametrize("place", ["objects/ab/x.o", "work/ab/x.o", "ab" * 14])
def test_all_that_lies_in_the_cache_counts(bench, place):
    path = bench.builds / place
    if "/" not in place:
        path /= "_C.so"
    assert [*cache.records(), *retention.prune(0)] == []
    cache.make_builds_directory()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * 4096)
    (entry,) = retention.entries()
    assert entry.size >= 2**20
    assert retention.prune(0, spare=0) == [(entry, "")]
    assert not path.exists()


def test_a_build_prunes_the_cache_to_its_limit(bench, old_builds, monkeypatch):
    monkeypatch.setattr(retention, "limit", lambda: 0)
    bench.write("two/two.cpp", "e")
    assert left(bench) == {*old_builds}
    assert {bench.load().info.key} == left(bench)


def test_what_is_being_compiled_stays(bench, old_builds):
    (work,) = (entry for entry in retention.entries() if entry.kind == "work")
    with lock.try_lock(work.path.name) as mine:
        assert mine
        assert retention.remove(work) == "is in use"
    assert work.path.exists()
    assert retention.remove(work) == ""
    assert not work.path.exists()


def test_records_come_by_their_last_use(bench, old_builds):
    start = old_builds[0][: cache.NAME]
    assert [record.key for record in cache.records(start)] == old_builds[::-1]
    age(bench.builds / old_builds[0] / "ok.json", 0)
    assert next(cache.records(start)).key == old_builds[0]
    assert [*cache.records("x")] == []


def test_objects_that_a_build_takes_are_in_use(bench):
    bench.load()
    objects = [*(bench.builds / "objects").glob("*/*")]
    for path in objects:
        age(path, 30)
    assert engine.build(bench.spec(ldflags=("-lm",))).reused == 2
    retention.prune(0)
    assert len(objects) == 4
    assert all(path.exists() for path in objects)


@pytest.mark.parametrize("text", [{}, {"TEXT": "PyInit__C\n"}])
def test_a_build_is_used_where_only_it_was_kept(bench, text):
    """Also one of given texts, whose files are in a folder of the cache."""
    bench.run(**text)
    for name in ("work", "objects"):
        shutil.rmtree(bench.builds / name)
    assert bench.run(**text)["cached"]


def test_a_program_keeps_what_it_has_loaded(bench):
    build = bench.load()
    retention.prune(0, spare=0)
    assert left(bench) == set()
    assert bench.load().module is build.module
    assert bench.run()["text"] == TEXT  # and others build it again


@pytest.mark.parametrize("value", ["x", "0"])
def test_a_wrong_limit_is_told_before_the_work(bench, monkeypatch, value):
    monkeypatch.setenv("LLTM_JIT_CACHE_GB", value)
    with pytest.raises(jit.ToolchainError, match=f"LLTM_JIT_CACHE_GB .*, but got '{value}'"):
        bench.load()
    assert bench.counts == []
    monkeypatch.setenv("LLTM_JIT_CACHE_GB", "10")
    assert retention.limit() == 10 * retention.GIGABYTE


def descriptors() -> int:
    """Those of this process, without what other tests have left behind."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_builds_cost_no_descriptor(bench):
    torch_api.load("_C", bench.sources, build_directory=bench.directory / "0")
    before = descriptors()
    for number in range(1, 3):
        place = bench.directory / str(number)
        torch_api.load("_C", bench.sources, build_directory=place, extra_cflags=[f"-DN={number}"])
        bench.write("two/two.cpp", str(number))
        bench.load()
    assert descriptors() <= before
