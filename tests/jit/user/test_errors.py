"""What an error tells besides its text: its parts, where it was raised, and what it survives."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import lltm_jit
from lltm_jit.jit import BuildError, BuildTimeout, CacheError, ToolchainError, torch_api
from lltm_jit.jit.user.errors import SourceMissing


def fails(bench, **arguments) -> BuildError:
    with pytest.raises(BuildError) as caught:
        torch_api.load("_C", bench.sources, **arguments)
    return caught.value


def test_the_parts_of_an_error(bench):
    file = bench.write("one/one.cpp", "one\n//! error wrong\n")
    error = fails(bench)
    assert (error.file, error.line, error.column) == (str(file), 2, 5)
    assert error.message == "wrong"
    assert "error: wrong" in Path(error.log).read_text()


def test_the_parts_that_are_unknown_are_none(bench):
    bench.write("one/one.cpp", "//! signal SIGKILL\n")
    error = fails(bench)
    assert (error.line, error.column) == (None, None)
    unknown = dict.fromkeys(("file", "line", "column", "log"))
    assert vars(BuildError("error: x\n   = cure")) == {**unknown, "message": "x"}


def test_the_parts_of_an_error_in_a_string(real):
    with pytest.raises(BuildError) as caught:
        torch_api.load_inline(
            "_C", ["int x;", "int y;\nint z = zero;"], functions=[], no_implicit_headers=True
        )
    error = caught.value
    assert (error.file, error.line, error.column) == ("cpp_sources[1]", 2, 9)
    shown = ["  --> cpp_sources[1]:2:9", "  |", "2 | int z = zero;", "  |         ^"]
    assert str(error).splitlines()[1:5] == shown


@pytest.mark.parametrize("timeout", [None, 0])
def test_an_error_crosses_a_pool_of_processes(bench, timeout):
    bench.write("one/one.cpp", "//! error wrong\n")
    error = fails(bench, timeout=timeout)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        crossed = pool.submit(torch_api.load, "_C", bench.sources, timeout=timeout).exception()
    assert type(crossed) is (BuildError if timeout is None else BuildTimeout)
    assert str(crossed) == str(error)
    assert vars(crossed) == vars(error)


@pytest.mark.parametrize("kind", [CacheError, ToolchainError, SourceMissing])
def test_other_errors_survive_another_process(kind):
    copy = pickle.loads(pickle.dumps(kind("text")))
    assert (type(copy), str(copy)) == (kind, "text")


CALLS = {
    "load": lambda sources: lltm_jit.load("_C", sources),
    "build": lambda sources: lltm_jit.build("_C", sources),
    "several": lambda sources: lltm_jit.build([{"name": n, "sources": sources} for n in "ab"]),
    "load_inline": lambda sources: lltm_jit.load_inline("_C", "//! error wrong", functions="f"),
    "missing": lambda sources: lltm_jit.load("_C", [sources / "none.cpp"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_ends_at_the_callers_line(bench, name):
    bench.write("one/one.cpp", "//! error wrong\n")
    with pytest.raises(lltm_jit.LltmJitError) as caught:
        CALLS[name](bench.sources)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    kept = 1 if sys.version_info < (3, 11) else 0
    assert files[: len(files) - kept] == [__file__] * 2
    assert "\nDuring handling" not in "".join(traceback.format_exception(caught.value))
    assert "\nThe above" not in "".join(traceback.format_exception(caught.value))
