"""Which builds are kept, and for how long."""

from __future__ import annotations

import gc
import os
import time

from lltm_jit.jit import torch_api
from lltm_jit.jit.store import cache, lock, publish, retention


def test_old_builds_are_pruned_but_none_that_was_used_within_a_day(bench, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_KEEP", "2")
    keys = []
    for text in "abcd":
        bench.write("two/two.cpp", text)
        keys.append(bench.run()["key"])
    assert left(bench) == set(keys)
    for hours, key in zip((30, 28, 26, 23), keys, strict=True):
        used_before(bench, key, hours)
    bench.write("two/two.cpp", "a")
    assert bench.run()["cached"]  # the oldest is the one in daily use
    bench.write("two/two.cpp", "e")
    keys.append(bench.run()["key"])
    assert left(bench) == {keys[0], keys[3], keys[4]}
    assert retention.prune(1) == {keys[0]: "", keys[3]: ""}  # as one asked for


def left(bench) -> set[str]:
    return {path.parent.name for path in bench.builds.glob("*/ok.json")}


def used_before(bench, key: str, hours: float) -> None:
    os.utime(bench.builds / key / "ok.json", (time.time() - 3600 * hours,) * 2)


def test_a_program_keeps_what_it_has_loaded(bench):
    build = bench.load()
    assert retention.remove(build.info.key) == ""
    assert bench.load().module is build.module
    assert bench.run()["text"] == "shared header\none\ntwo"  # and others build it again


def test_sources_given_as_strings_go_with_their_builds(bench):
    for name in ("_C", "basic"):
        torch_api.load_inline(name, f"PyInit_{name}")
    old, new = (bench.builds / "inline" / name for name in ("_C", "basic"))
    for path in (*old.iterdir(), old, *new.iterdir(), new):
        os.utime(path, (time.time() - 48 * 3600,) * 2)
    (key,) = (record.key for record in cache.records() if record.fingerprint["name"] == "_C")
    retention.prune()
    assert old.exists()
    retention.remove(key)
    with lock.try_lock(publish.lock_of_inline("_C")):
        retention.prune()
        assert old.exists()
    retention.prune()
    assert not old.exists()
    assert new.exists()
    torch_api.load_inline("_C", "PyInit__C // anew")


def descriptors() -> int:
    """Those of this process, without what other tests have left behind."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_build_directory_costs_no_descriptor(bench):
    torch_api.load("_C", bench.sources, build_directory=bench.directory / "0")
    before = descriptors()
    for number in range(1, 4):
        place = bench.directory / str(number)
        torch_api.load("_C", bench.sources, build_directory=place, extra_cflags=[f"-DN={number}"])
    assert descriptors() <= before


def test_a_build_that_nobody_uses_goes_whatever_its_flags(bench):
    key = bench.run()["key"]
    os.utime(bench.builds / key / "ok.json", (time.time() - 100 * 24 * 3600,) * 2)
    assert retention.prune() == {key: ""}
    assert not (bench.builds / key).exists()


def test_many_builds_in_use_need_one_descriptor(bench):
    bench.load()
    before = descriptors()
    for text in "abcd":
        bench.write("two/two.cpp", text)
        bench.load()
    assert descriptors() <= before


def test_pruning_where_nothing_is(bench):
    assert retention.prune(1) == {}


def test_a_wrong_number_of_builds_to_keep_is_told_before_the_work(bench):
    result = bench.run(LLTM_JIT_KEEP="x")
    assert result["error"] == "ToolchainError"
    assert "LLTM_JIT_KEEP" in result["message"]
    assert bench.counts == []
