"""The command about all builds: cache list, why, prune and clear."""

import errno
import os
import re
import shutil

import pytest
from tiny_builds import builds, tiny_spec

from lltm_jit import native
from lltm_jit.cli import main
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache, checked_json


def test_cache_why_names_what_a_build_needs(capsys, empty_root):
    assert main(["cache", "why"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for family, line in zip(native.OWN, lines[::2], strict=True):
        when = "an import" if family in native.AT_IMPORT else "its first use"
        assert line.startswith(f"{family}: {when} would build ")
        assert line.endswith(", because:")
    assert lines[1::2] == ["  - first build"] * 2
    assert main(["cache", "list"]) == 0
    assert "no builds" in capsys.readouterr().out


def test_cache_why_of_the_loaded_builds(capsys):
    loaded = {family: builds()[family] for family in native.OWN}
    assert main(["cache", "why", *loaded]) == 0
    told = capsys.readouterr().out
    assert main(["cache", "list"]) == 0
    listed = capsys.readouterr().out
    for family, info in loaded.items():
        when = "an import" if family in native.AT_IMPORT else "its first use"
        assert f"{family}: {when} loads {info.key}, made " in told
        assert f" in {info.seconds:.1f} s, because:\n" in told
        assert f"*  {info.key}  {family} " in listed
    assert "".join(re.findall("  - (.*)", told)).startswith(
        loaded["basic"].reason.partition(", ")[0]
    )
    assert max(map(len, told.splitlines())) <= 110


def test_cache_why_of_a_family_that_an_import_does_not_load(capsys, monkeypatch, empty_root):
    monkeypatch.setattr(native, "AT_IMPORT", ("basic",))
    assert main(["cache", "why", "all"]) == 0
    basic, *others = capsys.readouterr().out.splitlines()[::2]
    assert basic.startswith("basic: an import would build ")
    for name, line in zip(("rnn", "stylegan"), others, strict=True):
        assert line.startswith(f"{name}: its first use would build ")


def test_cache_why_names_the_changed_file(capsys, empty_root):
    # The record of the loaded build, as if maths.h had been another file then.
    directory = builds()["rnn"].directory
    copy = cache.builds_directory() / (directory.name[: cache.NAME] + "0" * 20)
    shutil.copytree(directory, copy)
    (empty_root / "lltm_jit").chmod(0o755)
    record = checked_json.read(copy / cache.RECORD)
    record["key"] = copy.name
    files = record["manifest"]["own"]
    files["kernels/rnn/cell_step/maths.h"] = "another digest"
    checked_json.write(copy / cache.RECORD, record)
    assert main(["cache", "why", "rnn"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(", because:\n  - kernels/rnn/cell_step/maths.h changed\n")
    record["manifest"]["own"] = dict.fromkeys(files, "another digest")
    checked_json.write(copy / cache.RECORD, record)
    assert main(["cache", "why", "rnn"]) == 0
    assert capsys.readouterr().out.count(" changed") == len(files) > 3


def test_cache_list_goes_on_where_a_file_is_removed_meanwhile(capsys, empty_root, tmp_path):
    directory = engine.build(*tiny_spec(tmp_path)).directory
    (directory / "gone").symlink_to("nowhere")
    assert main(["cache", "list"]) == 0
    assert f"{directory.name}  tiny " in capsys.readouterr().out


def test_cache_clear_removes_every_build(capsys, empty_root, tmp_path):
    build = engine.load(*tiny_spec(tmp_path))
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed {build.info.key}\n1 build removed\n"
    assert not build.info.directory.exists()
    assert engine.load(*tiny_spec(tmp_path)).module is build.module  # what is loaded stays so


def test_cache_clear_removes_what_this_version_cannot_read(capsys, empty_root, tmp_path):
    directory = engine.build(*tiny_spec(tmp_path)).directory
    (directory / cache.RECORD).write_text("{}")  # damaged, or of another version
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed {directory.name}\n1 build removed\n"
    assert not directory.exists()


def test_precompiled_headers_are_listed_and_cleared(capsys, empty_root):
    header = cache.make_builds_directory() / "pch" / "one"
    (header / "torch").mkdir(parents=True)
    (header / "torch" / "extension.h.gch").write_bytes(bytes(3_000_000))
    (header / "header.json").write_text("{}")
    assert main(["cache", "list"]) == 0
    assert "\nprecompiled header one: 3 MB\n" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed precompiled header one\nno build removed\n"
    assert not header.exists()


@pytest.mark.parametrize("words", [["clear"], ["prune", "--keep", "1"]])
def test_removing_says_what_cannot_be_deleted(capsys, empty_root, tmp_path, monkeypatch, words):
    directory = engine.build(*tiny_spec(tmp_path)).directory
    if "prune" in words:  # the older of two
        engine.build(*tiny_spec(tmp_path, "int answer() { return 43; }\n"))

    def read_only(path, *arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "mkdir", read_only)  # of a place to move it to
    assert main(["cache", *words]) == 1
    monkeypatch.undo()
    said = capsys.readouterr().out
    assert said == "no build removed\n1 kept: cannot be deleted (Read-only file system)\n"
    assert directory.exists()
