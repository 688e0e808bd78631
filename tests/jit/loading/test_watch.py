"""Rebuild on save, and an end to a build that nobody wants any more."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid, finish, slow, text_of, wait_for

import lltm_jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import reload
from lltm_jit.jit.user.cancel import Cancelled, cancelled_by


@pytest.fixture
def watched(bench, monkeypatch):
    """A module under watch: what the reloads told, and a way to wait for the next one."""
    module = torch_api.load("_C", bench.sources)
    told, news = [], threading.Event()
    original = reload.reload_module

    def then(done):
        told.append(done)
        news.set()

    def act(current):
        try:
            return original(current)
        finally:
            tried.set()

    tried = threading.Event()
    monkeypatch.setattr(reload, "reload_module", act)
    with lltm_jit.watch(module, then):
        yield bench, told, news, tried


def test_each_reload_starts_from_the_one_before(watched):
    bench, told, news, _ = watched
    for name, text in (("two", "deux\n"), ("two", "drei\n"), ("one", "uno\n")):
        news.clear()
        bench.write(f"{name}/{name}.cpp", text)
        assert news.wait(30)
    assert [done.changed for done in told[:2]] == 2 * [("kernels/two/two.cpp changed",)]
    # It includes nothing any more.
    assert told[-1].changed == ("kernels/one/one.cpp changed", "kernels/core/shared.h removed")
    assert text_of(told[-1].build) == "uno\ndrei"


def test_every_kind_of_source_is_watched(bench):
    news = threading.Event()
    module = torch_api.load("_C", bench.write("three.c", "three\n"))
    with lltm_jit.watch(module, lambda done: news.set()):
        bench.write("three.c", "drei\n")
        assert news.wait(30)


def test_a_save_during_a_rebuild_cancels_it(watched, tmp_path):
    bench, told, news, _ = watched
    bench.write("two/two.cpp", f"//! wait {tmp_path / 'gate'}\n")
    pid = compiler_pid(tmp_path / "gate")
    bench.write("two/two.cpp", "deux\n")
    assert news.wait(30)  # the compiler would wait for minutes
    assert not alive(pid)
    assert len(told) == 1
    assert text_of(told[0].build).endswith("deux")


def test_an_error_is_shown_and_the_watch_goes_on(watched, capsys):
    bench, told, news, tried = watched
    bench.write("two/two.cpp", "//! error broken\n")
    assert tried.wait(30)
    bench.write("two/two.cpp", "deux\n")
    assert news.wait(30)
    assert len(told) == 1
    said = capsys.readouterr().err
    assert "the old build stays in use\nerror: broken" in said


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_the_callback_does_not_end_the_watch(bench):
    module = torch_api.load("_C", bench.sources)
    calls, done = [], threading.Event()

    def then(result):
        calls.append(result)
        if len(calls) == 1:
            bench.write("two/two.cpp", "deux\n")
            raise ZeroDivisionError
        done.set()

    with lltm_jit.watch(module, then):
        bench.write("two/two.cpp", "zwei\n")
        assert done.wait(30)
    assert len(calls) == 2


@pytest.fixture
def watched_file(bench, monkeypatch):
    """A module of one file under watch, beside folders that are none of its business."""
    (bench.sources / "own" / "deep").mkdir(parents=True)
    source = bench.write("own/own.cpp", "one\n")
    module = torch_api.load("_C", source)
    tried, news = [], threading.Event()
    original = reload.reload_module

    def act(current):
        tried.append(current)
        return original(current)

    monkeypatch.setattr(reload, "reload_module", act)
    with lltm_jit.watch(module, lambda done: news.set()):
        yield bench, tried, news


def test_a_file_is_watched_without_the_folders_below_its_own(watched_file):
    bench, tried, news = watched_file
    bench.write("own/deep/other.cpp", "x\n")
    assert not news.wait(1)
    assert not tried
    bench.write("far/away.h", "first\n")
    bench.write("own/own.cpp", '#include "../far/away.h"\n')  # which is watched from now on
    for text in ("second", "third"):
        assert news.wait(30)
        news.clear()
        bench.write("far/away.h", f"{text}\n")
    assert news.wait(30)


def test_a_folder_that_is_made_anew_is_watched_again(watched):
    bench, _, news, _ = watched
    shutil.rmtree(bench.sources / "two")
    bench.write("two/two.cpp", "deux\n")
    assert news.wait(30)
    news.clear()
    bench.write("new/below/three.cpp", "three\n")
    assert news.wait(30)
    news.clear()
    bench.write("two/two.cpp", "drei\n")
    assert news.wait(30)


def test_a_folder_that_this_user_may_not_read_is_left_out(watched, monkeypatch):
    bench, _, news, _ = watched
    scandir = os.scandir

    def refuse(path):
        if "locked" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (bench.sources / "locked").mkdir()
    bench.write("two/two.cpp", "deux\n")
    assert news.wait(30)


def test_files_that_are_no_sources_are_not_watched(watched):
    bench, told, _, tried = watched
    bench.write("two/notes.txt", "x")
    assert not tried.wait(1)
    assert not told


IN_A_BLOCK = """
import threading
import lltm_jit
lltm_jit.native.load("rnn")
with lltm_jit.watch():
    print("watching", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("words", [("-m", "lltm_jit", "watch"), slow(("-c", IN_A_BLOCK))])
def test_ctrl_c_ends_a_rebuild_at_once(bench, package, words):
    with package.started(*words) as process:
        said = iter(process.stdout.readline, "")
        assert next(line for line in said if "watching" in line)
        wait_for(lambda: {line.split("/")[-1] for line in bench.counts} >= {"link"})
        bench.write("rnn/bindings.cpp", f"//! wait {package.gate}\n")
        package.assert_ctrl_c_ends(process)
    assert process.returncode == (0 if "watch" in words else -signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_ends_a_command_without_a_traceback(bench, package):
    bench.write("rnn/bindings.cpp", f"//! wait {package.gate}\n")
    with package.started("-m", "lltm_jit", "build") as process:
        assert "Traceback" not in package.assert_ctrl_c_ends(process)
    assert process.returncode == -signal.SIGINT  # as the shell that started it wants to know


def test_a_wait_for_another_builder_is_given_up_too(bench, same_torch, tmp_path, capsys):
    gate = tmp_path / "gate"
    bench.write("one/one.cpp", f"//! wait {gate}\n")
    builder = bench.start()
    compiler_pid(gate)
    unwanted = threading.Event()

    def load():
        with cancelled_by(unwanted), pytest.raises(Cancelled):
            bench.load()
        given_up.set()

    given_up = threading.Event()
    threading.Thread(target=load).start()
    wait_for(lambda: "waiting for process" in capsys.readouterr().err)
    unwanted.set()
    assert given_up.wait(60)
    Path(f"{gate}.go").touch()
    assert not finish(builder)["cached"]


def test_what_is_not_wanted_is_not_begun(bench, capsys):
    unwanted = threading.Event()
    unwanted.set()
    with cancelled_by(unwanted), pytest.raises(Cancelled):
        bench.load()
    assert bench.counts == []
    assert "building" not in capsys.readouterr().err
