"""Killed builders, crowds, damage, places that cannot be written: all in real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid, finish, wait_for

from lltm_jit import jit
from lltm_jit.jit import lock, retention

ALL = ["compile one.cpp", "compile two.cpp", "link"]
CROWD = 8


def assert_next_one_builds(bench) -> None:
    result = bench.run()
    assert result["text"] == "shared header\none\ntwo"
    assert not list(bench.builds.glob("tmp-*"))


def test_killed_before_ninja(bench, tmp_path):
    gate = tmp_path / "gate"
    process = bench.start(FAKE_TORCH_WAIT=str(gate))
    wait_for(gate.exists)
    process.kill()
    process.communicate()
    assert bench.counts == []
    assert_next_one_builds(bench)
    assert bench.counts == ALL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ended_inside_the_compiler(bench, tmp_path, number):
    gate = tmp_path / "gate"
    source = bench.write("one/one.cpp", f"//! wait {gate}\n")
    process = bench.start()
    pid = compiler_pid(gate)
    process.send_signal(number)
    process.communicate(timeout=20)
    wait_for(lambda: not alive(pid), 10)
    if number == signal.SIGINT:  # ended in order: nothing stays
        assert not list(bench.builds.glob("tmp-*"))
    source.write_text('#include "core/shared.h"\none\n')
    assert_next_one_builds(bench)


@pytest.mark.parametrize("moment", ["before rename", "after rename"])
def test_killed_while_publishing(bench, moment):
    process = bench.start(KILL=moment)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert bench.counts == ALL
    assert_next_one_builds(bench)
    assert bench.counts == ALL


def test_leftovers_of_another_build_are_removed(bench):
    process = bench.start(KILL="before rename")
    process.communicate()
    assert list(bench.builds.glob("tmp-*"))
    for text in ("deux\n", "drei\n"):  # a build leaves what happens to share its lock to the next
        bench.write("two/two.cpp", text)
        bench.run()
    assert not list(bench.builds.glob("tmp-*"))


def test_pruning_where_nothing_is(bench):
    assert retention.prune(1) == {}


def test_builds_that_no_version_can_use_are_removed(bench):
    keys = []
    for text in "abc":
        bench.write("two/two.cpp", text)
        keys.append(bench.run()["key"])
    another_schema(bench.builds / keys[0] / "ok.json")
    (bench.builds / keys[1] / "ok.json").unlink()
    for text in "de":  # a build leaves what happens to share its lock to the next one
        bench.write("two/two.cpp", text)
        keys.append(bench.run()["key"])
    left = {path.name for path in bench.builds.iterdir()}
    assert left == {*keys[2:], "locks", "failed", "toolchain.json"}


def test_worker_killed_is_an_error_and_not_a_hang(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    process = bench.start()
    pid = compiler_pid(gate)
    os.kill(parent_named(pid, "worker.py"), signal.SIGKILL)
    result = finish(process)
    assert result["error"] == "BuildError"
    wait_for(lambda: not alive(pid), 10)


def parent_named(pid: int, name: str) -> int:
    while name not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


def test_crowd_builds_once(bench, tmp_path):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\none\n")
    crowd = [bench.start() for _ in range(CROWD)]
    wait_for(lambda: gate.exists())
    time.sleep(1)
    Path(f"{gate}.go").touch()
    results = [finish(process) for process in crowd]
    assert bench.counts == ALL
    assert [result["cached"] for result in results].count(False) == 1
    waiters = [result["said"] for result in results if "waiting for process" in result["said"]]
    assert waiters
    assert all("which has been building since" in said for said in waiters)


def test_crowd_on_a_broken_source_builds_once(bench):
    bench.write("one/one.cpp", "//! sleep 2\n//! error no such thing\n")
    results = [finish(process) for process in [bench.start() for _ in range(CROWD)]]
    assert bench.counts.count("compile one.cpp") == 1
    assert {result["error"] for result in results} == {"BuildError"}
    assert len({result["message"] for result in results}) == 1
    assert results[0]["message"].startswith("error: no such thing\n  --> kernels/one/one.cpp:2:5")
    bench.run()  # one that starts later tries again
    assert bench.counts.count("compile one.cpp") == 1


def test_failure_of_long_ago_is_forgotten(bench):
    key = "0" * 20
    jit.engine.cache.make_builds_directory()
    file = bench.builds / "failed" / f"{key}.json"
    file.write_text(json.dumps({"message": "old", "time": time.time() - 61}))
    lock.raise_failure_of_others(key, time.time())
    file.write_text(json.dumps({"message": "new", "time": time.time()}))
    with pytest.raises(jit.BuildError, match="new"):
        lock.raise_failure_of_others(key, time.time())
    lock.raise_failure_of_others(key, time.time())  # a second try in the same process builds


def test_threads_build_once(bench):
    builds = []
    threads = [threading.Thread(target=lambda: builds.append(bench.load())) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.counts == ALL
    assert len({id(build.module) for build in builds}) == 1
    assert len(builds) == CROWD


def test_threads_on_a_broken_source_build_once(bench):
    bench.write("one/one.cpp", "//! sleep 0.5\n//! error no such thing\n")
    messages = []

    def load():
        with pytest.raises(jit.BuildError) as caught:
            bench.load()
        messages.append(str(caught.value))

    threads = [threading.Thread(target=load) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.counts.count("compile one.cpp") == 1
    assert len(messages) == CROWD
    assert len(set(messages)) == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def with_entry(**changes):
    """Damage that puts other values into a record."""

    def damage(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


another_schema = with_entry(schema=99)


def no_objects(path: Path) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "objects": dict.fromkeys(record["objects"])}))


@pytest.mark.parametrize("damage", [truncate, zero, Path.unlink])
def test_a_damaged_build_file_is_not_taken_over(bench, damage):
    key = bench.run()["key"]
    assert bench.counts == ALL
    damage(bench.builds / key / "build.ninja")
    bench.write("two/two.cpp", "deux\n")
    result = bench.run()
    assert result["text"].endswith("deux")
    assert "compile two.cpp" in bench.counts


def test_a_wrong_number_of_builds_to_keep_is_told_before_the_work(bench):
    result = bench.run(LLTM_JIT_KEEP="x")
    assert result["error"] == "ToolchainError"
    assert "LLTM_JIT_KEEP" in result["message"]
    assert bench.counts == []


@pytest.mark.skipif(sys.platform == "win32", reason="no umask there")
def test_files_of_a_build_are_its_owners_whatever_the_umask(bench):
    bench.builds.parent.mkdir()
    before = os.umask(0)
    try:
        key = bench.run()["key"]
    finally:
        os.umask(before)
    files = [*(bench.builds / key).iterdir()]
    assert {"_C.so", "ok.json"} <= {path.name for path in files}
    assert [path.name for path in files if path.stat().st_mode & 0o022] == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("_C.so", truncate),
        ("_C.so", zero),
        ("_C.so", lambda path: path.write_bytes(b"another file")),
        ("_C.so", Path.unlink),
        ("ok.json", truncate),
        ("ok.json", lambda path: path.write_text("no JSON")),
        ("ok.json", lambda path: path.write_text("[]")),
        ("ok.json", another_schema),
        ("ok.json", with_entry(created="yesterday")),
        ("ok.json", with_entry(places=[1])),
        ("ok.json", with_entry(fingerprint={"name": "_C", "files": 1})),
        ("ok.json", no_objects),
        ("ok.json", Path.unlink),
    ],
)
def test_damaged_build_is_built_again(bench, name, damage):
    key = bench.run()["key"]
    assert bench.counts == ALL
    damage(bench.builds / key / name)
    result = bench.run()
    # The objects have digests of their own: when they are right, linking them again is enough.
    assert bench.counts == (["link"] if name == "_C.so" else ALL)
    assert result["key"] == key
    if (name, damage) != ("ok.json", Path.unlink):  # without a record it was never a build
        notice = [line for line in result["said"].splitlines() if "damaged" in line]
        assert len(notice) == 1
        assert name in notice[0]
    assert bench.run()["cached"]


def test_odd_root(bench, tmp_path, monkeypatch):
    root = tmp_path / "with space, 'quote', \"double\" and größe"
    assert bench.run(TORCH_EXTENSIONS_DIR=str(root))["text"] == "shared header\none\ntwo"
    assert bench.run(TORCH_EXTENSIONS_DIR=str(root))["cached"]


def test_root_that_cannot_be_made(bench, tmp_path):
    (tmp_path / "file").touch()
    result = bench.run(TORCH_EXTENSIONS_DIR=str(tmp_path / "file" / "root"))
    assert result["error"] == "CacheError"
    assert "set TORCH_EXTENSIONS_DIR to a directory of your own" in result["message"]
    assert bench.counts == []


def test_full_disk_leaves_nothing_half_written(bench, monkeypatch):
    from lltm_jit.jit import cache

    def no_space(path, value):
        raise OSError(28, "No space left on device", str(path))

    bench.spec()  # the compilers' versions are known from here on
    monkeypatch.setattr(cache, "write_json", no_space)
    with pytest.raises(jit.CacheError, match="No space left on device; set TORCH_EXTENSIONS_DIR"):
        bench.load()
    assert not list(bench.builds.glob("tmp-*"))
    monkeypatch.undo()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_no_part_of_a_file(bench, monkeypatch, call):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, no_space)
    with pytest.raises(jit.CacheError, match="No space left on device; set TORCH_EXTENSIONS_DIR"):
        bench.load()
    monkeypatch.undo()
    assert list(bench.builds.rglob("*.partial")) == []


def test_read_only_cache_loads(bench):
    bench.run()
    assert bench.counts == ALL
    before = tree(bench.builds)
    for path in (bench.builds, *bench.builds.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert bench.run()["cached"]
        assert tree(bench.builds) == before
    finally:
        for path in (bench.builds, *bench.builds.rglob("*")):
            path.chmod(0o755)


def tree(directory: Path) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in directory.rglob("*")}


def test_root_that_others_may_write_to_is_refused(bench):
    bench.run()
    bench.builds.chmod(0o777)
    result = bench.run()
    assert result["error"] == "CacheError"
    assert "others may write to" in result["message"]
    assert f"chmod go-w {bench.builds.parent}" in result["message"]
    assert bench.run(LLTM_JIT_TRUST_ROOT="1")["cached"]
    bench.builds.chmod(0o755)
    bench.builds.parent.chmod(0o777)
    assert bench.run()["error"] == "CacheError"


def test_root_of_another_user_is_refused(bench, monkeypatch):
    bench.load()
    owner = bench.builds.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:  # root's own files are taken by everybody; make it somebody else's
        os.chown(bench.builds, 1234, -1)
    bench.write("two/two.cpp", "deux\n")
    with pytest.raises(jit.CacheError, match="belongs to user"):
        bench.load()


def test_old_builds_are_pruned_but_none_in_use(bench, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_KEEP", "2")
    gate = bench.directory / "loaded"
    user = bench.start(WAIT=str(gate))
    wait_for(lambda: gate.exists())
    used = [path.parent.name for path in bench.builds.glob("*/ok.json")]
    assert len(used) == 1
    keys = []
    for text in "abcd":
        bench.write("two/two.cpp", text)
        keys.append(bench.run()["key"])
    left = {path.parent.name for path in bench.builds.glob("*/ok.json")}
    assert left == {*used, *keys[-2:]}
    Path(f"{gate}.go").touch()
    finish(user)
    bench.write("two/two.cpp", "e")
    keys.append(bench.run()["key"])
    assert {path.parent.name for path in bench.builds.glob("*/ok.json")} == set(keys[-2:])


def test_ranks_build_once_and_only_the_first_speaks(bench):
    bench.write("one/one.cpp", "//! sleep 1\n")
    others = [bench.start(LOCAL_RANK=str(rank)) for rank in range(1, 4)]
    time.sleep(0.5)  # the first comes last
    first = bench.run(LOCAL_RANK="0")
    results = [finish(process) for process in others]
    assert bench.counts == ALL
    assert {result["key"] for result in results} == {first["key"]}
    assert [result["said"] for result in results] == ["", "", ""]
    assert [result["cached"] for result in results] == [True, True, True]
    assert "building for CPU" in first["said"]


def test_a_rank_that_is_alone_builds(bench):
    result = bench.run(LOCAL_RANK="1")
    assert not result["cached"]
    assert result["said"] == ""


def test_quiet(bench):
    assert bench.run(LLTM_JIT_QUIET="1")["said"] == ""
    assert bench.counts == ALL
