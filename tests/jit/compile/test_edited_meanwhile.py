"""Files that change while they are compiled: a build is never recorded with another's content."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_bench import finish, text_of, wait_for

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


@pytest.mark.parametrize("name", ["core/shared.h", "two/two.cpp", "one/core/shared.h"])
def test_an_edit_is_named_and_built_again(bench, built, name):
    """Of a header, of a source that may be compiled already, and of a header that comes where it
    would be found first. No object of a text that nobody knows is kept.
    """
    result = built(lambda: bench.write(name, "edited\n"))
    assert "edited" in result["text"]
    assert f"{AGAIN} (kernels/{name})" in result["said"] or "one/core" in name
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


@pytest.mark.parametrize("name", ["core/shared.h", "two/two.cpp"])
def test_the_same_text_written_again_is_no_change(bench, built, name):
    text = (bench.sources / name).read_text()
    assert AGAIN not in built(lambda: bench.write(name, text))["said"]


def test_a_file_system_whose_clock_lags(bench, monkeypatch):
    """What comes in front of a header that was read seems to be older than the build."""
    gate, now = bench.directory / "gate", time.time_ns
    bench.write("one/one.cpp", f"{INCLUDE}//! wait {gate}\n")
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
    builds: list = []
    loading = threading.Thread(target=lambda: builds.append(bench.load()))
    loading.start()
    wait_for(gate.exists)
    bench.write("one/core/shared.h", "in front\n")
    Path(f"{gate}.go").touch()
    loading.join()
    assert text_of(*builds).startswith("in front")


def test_a_source_that_is_gone(bench, built):
    result = built((bench.sources / "one" / "one.cpp").unlink)
    assert result["text"] == "two"
    assert AGAIN in result["said"]


@pytest.mark.parametrize("name", ["core/shared.h", "one/core/shared.h"])
def test_what_an_object_from_the_store_was_made_from(bench, name):
    """It was taken when the build began, and another source is compiled for a while."""
    bench.first()
    gate = bench.directory / "gate"
    bench.write("two/two.cpp", f"//! wait {gate}\n")
    process = bench.start()
    wait_for(gate.exists)
    bench.write(name, "edited\n")
    Path(f"{gate}.go").touch()
    result = finish(process)
    assert result["text"].startswith("edited")
    assert AGAIN in result["said"]


def test_what_nobody_looks_for_builds_nothing_again(bench, built):
    result = built(lambda: bench.write("one/notes.h", "of no interest\n"))
    assert AGAIN not in result["said"]
