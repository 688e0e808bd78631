"""Files that change while they are compiled: the build is made again."""

import threading
import time
from collections.abc import Callable

import pytest
from harness import finish, text_of

INCLUDE = '#include "core/shared.h"\n'
AGAIN = "a source changed during the build"


@pytest.fixture
def built(bench, gate):
    """Build, with a change of the files when the compilers have read them; the result."""

    def build(change: Callable[[], object], waits: str = "one/one.cpp", text: str = INCLUDE):
        bench.write(waits, f"{text}{gate.order}")
        process = bench.start()
        gate.reached()
        change()
        gate.open()
        return finish(process)

    return build


@pytest.mark.parametrize("name", ["core/shared.h", "two/two.cpp", "one/core/shared.h"])
def test_an_edit_during_a_build_is_named_and_built_again(bench, built, name):
    """Of a header, of a source that may be compiled already, and of a header that comes where it
    would be found first. No object of a text that nobody knows is kept.
    """
    result = built(lambda: bench.write(name, "edited\n"))
    assert "edited" in result["text"]
    assert f"{AGAIN} (kernels/{name})" in result["said"] or "one/core" in name
    assert AGAIN in result["said"]
    assert bench.run()["cached"]


def test_a_link_that_leads_to_another_file_of_before(bench, built):
    header = bench.sources / "one" / "core" / "shared.h"
    old, new = (bench.write(f"versions/{name}", f"{name}\n") for name in ("old.h", "new.h"))
    header.parent.mkdir(parents=True)
    header.symlink_to(old)
    result = built(lambda: (header.unlink(), header.symlink_to(new)))
    assert result["text"].startswith("new.h")
    assert AGAIN in result["said"]


@pytest.mark.parametrize("name", ["core/shared.h", "two/two.cpp", "one/notes.h"])
def test_what_is_no_edit_during_a_build(bench, built, name):
    """The same text written again, and a file that nobody looks for."""
    text = (bench.sources / name).read_text() if "notes" not in name else ""
    assert AGAIN not in built(lambda: bench.write(name, text))["said"]


def test_a_file_system_whose_clock_lags(bench, gate, monkeypatch):
    """What comes in front of a header that was read seems to be older than the build."""
    now = time.time_ns
    bench.write("one/one.cpp", f"{INCLUDE}{gate.order}")
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
    builds: list = []
    loading = threading.Thread(target=lambda: builds.append(bench.load()))
    loading.start()
    gate.reached()
    bench.write("one/core/shared.h", "in front\n")
    gate.open()
    loading.join()
    assert text_of(*builds).startswith("in front")


def test_a_source_that_goes_during_a_build(bench, built):
    result = built((bench.sources / "one" / "one.cpp").unlink)
    assert result["text"] == "two"
    assert AGAIN in result["said"]


@pytest.mark.parametrize("name", ["core/shared.h", "one/core/shared.h"])
def test_what_an_object_from_the_store_was_made_from(bench, built, name):
    """It was taken when the build began, and another source is compiled for a while."""
    bench.first()
    result = built(lambda: bench.write(name, "edited\n"), waits="two/two.cpp", text="")
    assert result["text"].startswith("edited")
    assert AGAIN in result["said"]
