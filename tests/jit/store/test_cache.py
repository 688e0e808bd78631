"""Builds on disk: damaged, pruned, and in places that cannot be written."""

import errno
import json
import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness import ALL, TEXT, slow, tiers

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache, files


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_entry(**changes):
    """Damage that puts other values into a record."""
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


NO_RECORD = "no record"
DAMAGES = {
    "a library cut short": ("_C.so", truncate),
    "a library of zeros": ("_C.so", lambda path: path.write_bytes(bytes(path.stat().st_size))),
    "another file for a library": ("_C.so", lambda path: path.write_bytes(b"another file")),
    "a pipe for a library": ("_C.so", become_a_pipe),
    "no library": ("_C.so", Path.unlink),
    "a record cut short": ("ok.json", truncate),
    "no JSON": ("ok.json", lambda path: path.write_text("no JSON")),
    "a list for a record": ("ok.json", lambda path: path.write_text("[]")),
    "too deep a record": ("ok.json", lambda path: path.write_text("[" * 100_000)),
    "a word for a time": ("ok.json", with_entry(created="yesterday")),
    "a number for files": ("ok.json", with_entry(content={"name": "_C", "files": 1})),
    "a pipe for a record": ("ok.json", become_a_pipe),
    NO_RECORD: ("ok.json", Path.unlink),
}
QUICK = ("a library cut short", "no library", "too deep a record", NO_RECORD)


@pytest.mark.parametrize("way", tiers(DAMAGES, QUICK))
def test_damaged_build_is_built_again(bench, way):
    name, damage = way
    key = bench.run()["key"]
    assert bench.counts == ALL
    damage(bench.builds / key / name)
    result = bench.run()
    assert bench.counts == ["link"]  # the objects are in the store
    assert result["key"] == key
    if way != DAMAGES[NO_RECORD]:  # without a record it was never a build
        notice = [line for line in result["said"].splitlines() if "damaged" in line]
        assert len(notice) == 1
        assert name in notice[0]
    assert bench.run()["cached"]


@pytest.mark.parametrize("stand_in", [slow(Path.touch), lambda path: path.symlink_to("nowhere")])
def test_what_stands_in_the_place_of_a_build_is_replaced(bench, stand_in):
    place = bench.builds / bench.run()["key"]
    shutil.rmtree(place)
    stand_in(place)
    assert not bench.run()["cached"]
    assert bench.run()["cached"]


@pytest.mark.parametrize("umask", [slow(0o022), 0o077])
def test_a_root_that_a_group_shares_is_open_to_it_whatever_the_umask(bench, umask):
    bench.builds.parent.mkdir()
    bench.builds.parent.chmod(0o2770)
    bench.write("two/two.cpp", "//! error wrong\n")
    before = os.umask(umask)
    try:
        assert "error" in bench.run(LLTM_JIT_TRUST_ROOT="1")
        bench.write("two/two.cpp", "two\n")
        bench.run(LLTM_JIT_TRUST_ROOT="1")
    finally:
        os.umask(before)
    entries = [bench.builds, *bench.builds.rglob("*")]
    modes = {path.name: path.stat().st_mode for path in entries}
    assert {"lltm_jit", "locks", "work", "objects", "_C.so", "one.o", "ok.json"} <= modes.keys()
    assert [name for name, mode in modes.items() if (mode & 0o700) >> 3 != mode & 0o070] == []


def test_two_versions_of_the_package_share_a_root(bench, monkeypatch, capsys):
    """Each leaves the other's builds as they are."""
    for schema, compiled in ((98, ALL), (99, ALL), (98, []), (99, [])):
        monkeypatch.setattr(cache, "SCHEMA", schema)
        engine.build(bench.spec())
        assert bench.counts == compiled
    assert "damaged" not in capsys.readouterr().err


def test_a_build_that_an_image_brings_is_replaced(bench, monkeypatch):
    """On an overlay, a folder of a lower layer cannot be renamed."""
    key = bench.load().info.key
    replace = os.replace

    def refuse_folders(source, target):
        if Path(source).is_dir():
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_folders)
    assert engine.build(bench.spec(), force=True).key == key
    assert engine.build(bench.spec()).cached


@pytest.mark.parametrize("name", ["with space, 'quote', \"double\", co:lon and größe", "dol$lar"])
def test_odd_root(bench, tmp_path, name):
    root = f"~/{name}"
    first, second = (bench.run(TORCH_EXTENSIONS_DIR=root, HOME=str(tmp_path)) for _ in range(2))
    assert (first["text"], second["cached"]) == (TEXT, True)
    assert (tmp_path / name / "lltm_jit").is_dir()


def test_root_that_cannot_be_made(bench):
    result = bench.run(TORCH_EXTENSIONS_DIR="/dev/null/root")
    assert result["error"] == "CacheError"
    assert "set TORCH_EXTENSIONS_DIR to a directory of your own" in result["message"]
    assert bench.counts == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_no_part_of_a_file(bench, monkeypatch, call):
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(jit.CacheError, match="No space left on device; free space on its disk"):
        bench.load()
    monkeypatch.undo()
    assert [*bench.builds.rglob("*.partial"), *bench.records] == []


def test_read_only_cache_loads(bench):
    bench.run()
    everything = (bench.builds, *bench.builds.rglob("*"))
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        time.sleep(2 * files._TICK_NS / 1e9)  # a stamp that is younger is not noted
        assert bench.run()["cached"]  # root notes what stamps the files have now
        before = tree(bench.builds)
        assert bench.run()["cached"]
        assert tree(bench.builds) == before  # for root, but for the time of its last use
    finally:
        for path in everything:
            path.chmod(0o755)


def tree(directory: Path) -> dict[Path, tuple[int, int]]:
    found = {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in directory.rglob("*")}
    return {p: entry for p, entry in found.items() if p.name != "ok.json"}


def test_files_of_a_build_are_its_owners_whatever_the_umask(bench):
    before = os.umask(0)
    try:
        key = bench.run()["key"]
        torch_api.load_inline("_C", "PyInit__C")
        assert bench.run()["cached"]
    finally:
        os.umask(before)
    assert {"_C.so", "ok.json"} <= {path.name for path in (bench.builds / key).iterdir()}
    everything = [bench.builds.parent, *bench.builds.parent.rglob("*")]
    assert [path.name for path in everything if path.stat().st_mode & 0o022] == []
    closed = [bench.builds / name for name in ("locks", "work", "objects")]
    assert [path.name for path in closed if path.stat().st_mode & 0o077] == []
