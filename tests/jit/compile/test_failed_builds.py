"""Builds that fail: what is told of them, and what stays for the next one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid, text_of

from lltm_jit import jit
from lltm_jit.jit.compile import objects
from lltm_jit.jit.loading import engine, importing
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.request.spec import spec
from lltm_jit.jit.store import cache, lock
from lltm_jit.jit.torch_api import build, load
from lltm_jit.jit.user import cancel


def fail(bench, text: str = "this is wrong") -> None:
    bench.write("two/two.cpp", f"//! error {text}\n")
    with pytest.raises(jit.BuildError, match=text):
        bench.load()


def test_failed_build_raises_the_first_error_and_the_next_try_builds(bench, monkeypatch):
    monkeypatch.chdir(bench.directory)
    path = bench.write("one/one.cpp", "//! error 'nonsense' was not declared\n")
    for _ in range(2):
        with pytest.raises(jit.BuildError) as caught:
            bench.load()
        assert "compile one.cpp" in bench.counts
        lines = str(caught.value).splitlines()
        assert lines[:5] == [
            "error: 'nonsense' was not declared",
            "  --> kernels/one/one.cpp:1:5",
            "  |",
            "1 | //! error 'nonsense' was not declared",
            "  |     ^",
        ]
        log = lines[5].rpartition("full log: ")[2]
        assert "'nonsense' was not declared" in Path(log).read_text()
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, RuntimeError)  # as torch's own
    assert "Error building extension '_C'" in str(caught.value)
    path.write_text("one\n")
    assert "one" in text_of(bench.load())


def test_what_a_failed_build_finished_is_not_compiled_again(bench):
    fail(bench)
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    fail(bench, "still wrong")
    assert bench.counts == ["compile two.cpp"]
    assert text_of(bench.edited("two/two.cpp", "two\n")) == "shared header\none\ntwo"


def test_what_a_cancelled_build_finished_is_not_compiled_again(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "1")
    gate, unwanted = tmp_path / "gate", threading.Event()
    bench.write("one/one.cpp", "long, and so the first\n" * 99)
    bench.write("two/two.cpp", f"//! wait {gate}\n")

    def cancel_there() -> None:
        compiler_pid(gate)
        unwanted.set()

    threading.Thread(target=cancel_there).start()
    with cancel.cancelled_by(unwanted), pytest.raises(cancel.Cancelled):
        engine.build(bench.spec())
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    bench.edited("two/two.cpp", "two\n")


def test_a_build_that_takes_too_long_is_ended(bench, tmp_path, monkeypatch):
    """With its compilers; what was finished is kept, and the next try compiles the rest."""
    monkeypatch.setenv("MAX_JOBS", "1")
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", "long, and so the first\n" * 99)
    bench.write("two/two.cpp", f"//! wait {gate}\n")
    with pytest.raises(jit.BuildTimeout) as caught:
        load("_C", bench.sources, timeout=3)
    error = caught.value
    assert str(error).startswith("error: the build was ended after 3 s, while compiling two.cpp\n")
    assert error.file == str(bench.sources / "two/two.cpp")
    assert "FAILED" not in Path(error.log).read_text()
    assert not alive(int(gate.read_text()))
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    bench.write("two/two.cpp", "two\n")
    load("_C", bench.sources, timeout=100)
    assert bench.counts == ["compile two.cpp", "link"]
    load("_C", bench.sources, timeout=0)  # which builds nothing


@pytest.mark.parametrize("several", [False, True])
def test_a_build_that_is_not_loaded_is_ended_too(bench, tmp_path, several):
    gate = tmp_path / "gate"
    bench.write("two/two.cpp", f"//! wait {gate}\n")
    one = {"name": "_C", "sources": bench.sources}
    with pytest.raises(jit.BuildTimeout, match="the build was ended after 3 s"):
        build([one], timeout=3) if several else build(**one, timeout=3)
    assert not alive(int(gate.read_text()))


def test_the_wait_for_another_build_counts(bench):
    request = Request(spec("_C", bench.sources))
    who = f"waiting for process {os.getpid()}"
    with lock.held(request.place, print), pytest.raises(jit.BuildTimeout, match=who):
        load("_C", bench.sources, timeout=0.2)
    with ThreadPoolExecutor(1) as pool, importing.thread_lock(request.key):
        waiting = pool.submit(load, "_C", bench.sources, timeout=0.2)
        with pytest.raises(jit.BuildTimeout, match="while waiting for another thread"):
            waiting.result()
    assert bench.counts == []


@pytest.mark.parametrize("left", ["", "# ninja log v7\n0\t5\t17"])
def test_a_log_of_ninja_that_a_full_disk_cut_off(tmp_path, left):
    (tmp_path / ".ninja_log").write_text(left)
    assert objects.finished(tmp_path) == {}


def test_error_of_the_compiler_stands_when_nothing_can_be_kept(bench, monkeypatch):
    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(cache, "link_or_copy", full)
    fail(bench)
