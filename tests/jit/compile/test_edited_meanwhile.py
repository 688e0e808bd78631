"""Files that change while they are compiled: a build is never recorded with another's content."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_bench import finish, wait_for

INCLUDE = '#include "core/shared.h"\n'
AGAIN = "a source changed during the build"


@pytest.fixture
def built(bench):
    """Build, with a change of the files when the compilers have read them; the result."""
    gate = bench.directory / "gate"

    def build(change: Callable[[], object], source: str = INCLUDE) -> dict:
        bench.write("one/one.cpp", f"{source}//! wait {gate}\n")
        process = bench.start()
        wait_for(gate.exists)
        change()
        Path(f"{gate}.go").touch()
        return finish(process)

    return build


def test_a_header_that_comes_where_it_would_be_found_first(bench, built):
    result = built(lambda: bench.write("one/core/shared.h", "found first\n"))
    assert result["text"].startswith("found first")
    assert AGAIN in result["said"]
    assert bench.run()["cached"]


def test_a_link_that_leads_to_another_file_of_before(bench, built):
    for name in ("old.h", "new.h"):
        bench.write(f"versions/{name}", f"{name}\n")
    header = bench.sources / "one" / "core" / "shared.h"
    header.parent.mkdir()
    header.symlink_to(bench.sources / "versions" / "old.h")

    def lead_elsewhere():
        header.unlink()
        header.symlink_to(bench.sources / "versions" / "new.h")

    result = built(lead_elsewhere)
    assert result["text"].startswith("new.h")
    assert AGAIN in result["said"]


def test_a_source_that_is_as_it_was_again(bench, built):
    """What the compiler read in between, nobody knows."""
    two = bench.sources / "two" / "two.cpp"

    def edit_and_undo():
        text = two.read_text()
        two.write_text("something else\n")
        two.write_text(text)

    assert AGAIN in built(edit_and_undo)["said"]


def test_a_source_that_is_gone(bench, built):
    result = built((bench.sources / "one" / "one.cpp").unlink)
    assert result["error"] == "SourceMissing"
    assert (
        result["message"].splitlines()[0]
        == f"error: cannot read {bench.sources}/one/one.cpp: No such file or directory"
    )


def test_what_nobody_looks_for_builds_nothing_again(bench, built):
    result = built(lambda: bench.write("one/notes.h", "of no interest\n"))
    assert AGAIN not in result["said"]


def test_a_file_system_that_counts_seconds(bench, built, monkeypatch):
    from lltm_jit.jit import BuildSpec
    from lltm_jit.jit.compile.manifest_writer import Writer

    header = bench.write("one/own.h", "x\n")
    status = os.stat(header)
    whole = status.st_ctime_ns // 10**9 * 10**9

    class Coarse:
        st_ctime_ns = whole
        st_size, st_mtime_ns, st_ino = status.st_size, whole, status.st_ino

    spec = BuildSpec("x", (bench.sources / "one" / "one.cpp",))
    writer = Writer(spec, None, [], whole + 10**6)
    monkeypatch.setattr(os, "lstat", lambda path: Coarse)
    assert writer.add([str(header)]) == [str(header)[1:]]
    assert writer.edited == {str(header)[1:]}
