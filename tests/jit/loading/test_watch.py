"""Rebuild on save, and an end to a build that nobody wants any more."""

import os
import shutil
import signal
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch
from harness import alive, finish, slow, text_of, wait_for

import lltm_jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import reload
from lltm_jit.jit.user.errors import Cancelled, cancelled_by


@pytest.fixture
def watch(monkeypatch):
    """Watch a module; what the reloads told, and ways to wait for a try and for the next one."""
    original = reload.reload_module
    with ExitStack() as watching:

        def start(module):
            news = threading.Semaphore(0)
            seen = SimpleNamespace(told=[], tried=threading.Event())
            seen.heard = lambda: news.acquire(timeout=30)

            def then(done):
                seen.told.append(done)
                news.release()

            def act(current):
                try:
                    return original(current)
                finally:
                    seen.tried.set()

            monkeypatch.setattr(reload, "reload_module", act)
            watching.enter_context(lltm_jit.watch(module, then))
            return seen

        yield start


@pytest.fixture
def watched(bench, watch):
    """The small extension under watch."""
    return watch(torch_api.load("_C", bench.sources))


def test_each_reload_starts_from_the_one_before(bench, watched):
    for name, text in (("two", "deux\n"), ("two", "drei\n"), ("one", "uno\n")):
        bench.write(f"{name}/{name}.cpp", text)
        assert watched.heard()
    *first, last = watched.told
    assert [done.changed for done in first] == 2 * [("kernels/two/two.cpp changed",)]
    # It includes nothing any more.
    assert last.changed == ("kernels/one/one.cpp changed", "kernels/core/shared.h removed")
    assert text_of(last.build) == "uno\ndrei"


def test_every_kind_of_source_is_watched(bench, watch):
    watched = watch(torch_api.load("_C", bench.write("three.c", "three\n")))
    bench.write("three.c", "drei\n")
    assert watched.heard()


def test_a_save_during_a_rebuild_cancels_it(bench, watched, gate):
    bench.write("two/two.cpp", gate.order)
    pid = gate.reached()
    bench.write("two/two.cpp", "deux\n")
    assert watched.heard()  # the compiler would wait for minutes
    assert not alive(pid)
    (told,) = watched.told
    assert text_of(told.build).endswith("deux")


def test_an_error_is_shown_and_the_watch_goes_on(bench, watched, capsys):
    bench.write("two/two.cpp", "//! error broken\n")
    assert watched.tried.wait(30)
    bench.write("two/two.cpp", "deux\n")
    assert watched.heard()
    assert len(watched.told) == 1
    assert "the old build stays in use\nerror: broken" in capsys.readouterr().err


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


def test_a_file_is_watched_without_the_folders_below_its_own_and_what_is_no_source(bench, watch):
    (bench.sources / "own" / "deep").mkdir(parents=True)
    watched = watch(torch_api.load("_C", bench.write("own/own.cpp", "one\n")))
    bench.write("own/deep/other.cpp", "x\n")
    bench.write("own/notes.txt", "x\n")
    assert not watched.tried.wait(0.5)
    bench.write("far/away.h", "first\n")
    bench.write("own/own.cpp", '#include "../far/away.h"\n')  # which is watched from now on
    for text in ("second", "third"):
        assert watched.heard()
        bench.write("far/away.h", f"{text}\n")
    assert watched.heard()


def test_folders_that_are_new_or_made_anew_are_watched(bench, watched):
    (bench.sources / "new" / "below").mkdir(parents=True)
    assert watched.tried.wait(30)
    while watched.tried.wait(0.5):  # until the watch has found the folders, and is idle
        watched.tried.clear()
    bench.write("new/below/three.cpp", "three\n")
    assert watched.heard()
    shutil.rmtree(bench.sources / "two")
    for text in ("deux", "drei"):
        bench.write("two/two.cpp", f"{text}\n")
        assert watched.heard()


def test_a_folder_that_this_user_may_not_read_is_left_out(bench, watched, monkeypatch):
    scandir = os.scandir

    def refuse(path):
        if "locked" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (bench.sources / "locked").mkdir()
    bench.write("two/two.cpp", "deux\n")
    assert watched.heard()


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
        bench.write("rnn/bindings.cpp", package.gate.order)
        package.assert_ctrl_c_ends(process)
    assert process.returncode == (0 if "watch" in words else -signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_ends_a_command_without_a_traceback(bench, package):
    bench.write("rnn/bindings.cpp", package.gate.order)
    with package.started("-m", "lltm_jit", "build") as process:
        assert "Traceback" not in package.assert_ctrl_c_ends(process)
    assert process.returncode == -signal.SIGINT  # as the shell that started it wants to know


def test_a_wait_for_another_builder_is_given_up_too(bench, monkeypatch, gate, capsys):
    # The stand-in of another process passes for the torch of this one.
    monkeypatch.setenv("FAKE_TORCH_VERSION", torch.__version__)
    monkeypatch.setenv("FAKE_TORCH_CUDA", torch.version.cuda or "")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    bench.write("one/one.cpp", gate.order)
    builder = bench.start()
    gate.reached()
    unwanted, given_up = threading.Event(), threading.Event()

    def load():
        with cancelled_by(unwanted), pytest.raises(Cancelled):
            bench.load()
        given_up.set()

    threading.Thread(target=load).start()
    wait_for(lambda: "waiting for process" in capsys.readouterr().err)
    unwanted.set()
    assert given_up.wait(60)
    gate.open()
    assert not finish(builder)["cached"]


def test_what_is_not_wanted_is_not_begun(bench, capsys):
    unwanted = threading.Event()
    unwanted.set()
    with cancelled_by(unwanted), pytest.raises(Cancelled):
        bench.load()
    assert bench.counts == []
    assert "building" not in capsys.readouterr().err
