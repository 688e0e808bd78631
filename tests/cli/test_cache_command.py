"""The command about all that is kept: cache list, why, prune and clear."""

import errno
import os
import shutil
from unittest.mock import Mock

from lltm_jit import native
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache, files, retention


def test_why_says_what_would_be_built(told, empty_root, monkeypatch):
    monkeypatch.setattr(native, "AT_IMPORT", ("basic",))
    whens = {"basic": "an import", "rnn": "its first use", "stylegan": "its first use"}
    lines = [f"{name}: {when} would build it, because:" for name, when in whens.items()]
    said = told("cache", "why", "all").splitlines()
    assert said == [line for first in lines for line in (first, "  - first build")]
    assert told("cache", "why") == "\n".join(said[:4]) + "\n"
    assert "no builds" in told("cache", "list")


def test_why_and_list_of_builds_that_are_loaded(told, builds):
    said, listed = told("cache", "why", *native.OWN), told("cache", "list")
    for family in native.OWN:
        info = builds[family]
        when = "an import" if family in native.AT_IMPORT else "its first use"
        assert f"{family}: {when} loads {info.library}, made " in said
        assert f" in {info.seconds:.1f} s: {info.reason}\n" in said
        assert f"*  {info.key}  {family} " in listed
    assert "because" not in said


def test_why_names_the_changed_file(told, builds, empty_root):
    # The record of the loaded build, as if maths.h had been another file then.
    directory = builds["rnn"].directory
    copy = cache.make_builds_directory() / (directory.name[: cache.NAME] + "0" * 24)
    shutil.copytree(directory, copy)
    record = files.read_json(copy / cache.RECORD)
    record["key"], read = copy.name, record["inputs"]["files"]
    read["kernels/rnn/cell_step/maths.h"] = "another digest"
    files.write_json(copy / cache.RECORD, record)
    said = told("cache", "why", "rnn")
    assert said.endswith(", because:\n  - kernels/rnn/cell_step/maths.h changed\n")
    own = [label for label in read if not os.path.isabs(label)]
    read.update(dict.fromkeys(own, "another digest"))
    files.write_json(copy / cache.RECORD, record)
    assert told("cache", "why", "rnn").count(" changed\n") == len(own) > 3


def test_why_says_what_a_build_would_fail_with(told, empty_root, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = told("cache", "why", "basic")
    assert "That would fail: CXX is set to 'no-such-compiler', which is not found" in said
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    assert "That would fail: LLTM_JIT_DISABLE_JIT forbids" in told("cache", "why", "basic")


def test_list_shows_all_kinds_and_the_limit_and_clear_removes_them(told, tiny, empty_root):
    build = engine.load(tiny())
    (build.info.directory / "gone").symlink_to("nowhere")  # as a file that is removed meanwhile
    rows = [line.split("  ") for line in told("cache", "list").splitlines()]
    assert [*filter(None, rows[2])][:2] == [build.info.key, "tiny"]
    counts = {kind.strip(): (int(count), size) for count, kind, *_, size in rows[4:-1]}
    assert {kind: count for kind, (count, _) in counts.items()} == {
        "builds": 1,
        "folders of compilations": 1,
        "objects": 1,
    }
    assert rows[-1] == ["0.0 of at most 20 GB (LLTM_JIT_CACHE_GB)"]
    assert told("cache", "clear").startswith("removed:\n1  builds ")
    assert told("cache", "clear") == "nothing is removed\n"
    assert not build.info.directory.exists()
    assert engine.load(tiny()).module is build.module  # what is loaded stays so
    directory = engine.build(tiny("int another() { return 43; }\n")).directory
    (directory / cache.RECORD).write_text("{}")  # damaged, or of another version
    assert "\n1  builds " in told("cache", "clear")
    assert not directory.exists()


def test_prune_removes_down_to_a_size_what_was_not_used_within_an_hour(
    told, tiny, empty_root, monkeypatch
):
    old, new = (engine.build(tiny(f"int f() {{ return {n}; }}\n")).directory for n in (1, 2))
    monkeypatch.setattr(retention, "size_of", lambda path: 6e8 if path in (old, new) else 0)
    assert told("cache", "prune", "--gb", 1) == "nothing is removed\n"
    os.utime(old / cache.RECORD, (0, 0))
    assert told("cache", "prune") == "nothing is removed\n"
    assert told("cache", "prune", "--gb", 1) == "removed:\n1  builds  600.0 MB\n"
    assert (old.exists(), new.exists()) == (False, True)


def test_what_cannot_be_deleted_is_told(told, tiny, empty_root, monkeypatch):
    directory = engine.build(tiny()).directory
    read_only = OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(shutil, "rmtree", Mock(side_effect=read_only))
    said = told("cache", "clear", code=1)
    assert f"{directory} cannot be deleted (Read-only file system)\n" in said
    assert directory.exists()
