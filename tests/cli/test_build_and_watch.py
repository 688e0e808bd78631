"""`python -m lltm_jit build` and `watch`, on a copy of the project with small families."""

import argparse
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_checkout import run_in

from lltm_jit import native
from lltm_jit.cli import build, watch
from lltm_jit.jit import detect
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.request import Request

PROGRAM = "from lltm_jit import native; print('the answer is', native.tiny.value(), flush=True)"


def test_kinds_are_chosen_by_the_environment(monkeypatch):
    chosen = {"debug": False, "sanitize": None, "lineinfo": False}
    for cuda in (False, True):
        tools = detect()._replace(cuda_missing="" if cuda else "no nvcc")
        monkeypatch.setattr(build, "detect", lambda tools=tools: tools)
        debug = {"LLTM_JIT_DEBUG": "1", **({"CUDA_DEVICE_DEBUG": "1"} if cuda else {})}
        for flags, variables in (
            ({}, {}),
            ({"debug": True}, debug),
            ({"sanitize": "undefined"}, {"LLTM_JIT_SANITIZE": "undefined"}),
            ({"lineinfo": True}, {"LLTM_JIT_LINEINFO": "1"}),
        ):
            assert build.settings(argparse.Namespace(**chosen | flags)) == variables


def test_a_debug_build_is_not_optimized_whatever_level_the_user_gave(tiny, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_DEBUG", "1")
    spec = tiny(cflags=("-O3",), cuda_cflags=("-O3",), with_cuda=True)
    tools = detect()._replace(cuda_missing="")
    request = Request(spec, tools)
    for words in (request.cflags, request.cuda_cflags):
        assert [word for word in words if word.startswith("-O")][-1] == "-O0"
        assert "-g" in words


def test_address_sanitizer_is_preloaded():
    line = build.how_to_use({"LLTM_JIT_SANITIZE": "undefined,address"}, "g++")
    assert line.startswith("LLTM_JIT_SANITIZE=undefined,address LD_PRELOAD=")
    assert "/libasan.so" in line
    assert "LD_PRELOAD" not in build.how_to_use({"LLTM_JIT_SANITIZE": "undefined"}, "g++")


@pytest.mark.slow
def test_debug_and_release_side_by_side(small_checkout):
    debug = run_in(small_checkout, "-m", "lltm_jit", "build", "--debug", "--force", "--verbose")
    library, hint = debug.stdout.splitlines()
    assert hint.startswith("to use it: LLTM_JIT_DEBUG=1 ")
    assert " -O0 -g" in debug.stderr
    release = run_in(small_checkout, "-m", "lltm_jit", "build", "--lineinfo")
    assert release.stdout.splitlines()[0] != library


@pytest.mark.slow
def test_all_families_are_built_or_those_named(small_checkout):
    for families, names in (
        (["tiny", "other", "tiny"], ["tiny.so", "other.so"]),
        ([], ["tiny.so"]),
        (["all"], ["other.so", "tiny.so"]),
    ):
        done = run_in(small_checkout, "-m", "lltm_jit", "build", *families)
        assert [Path(line).name for line in done.stdout.splitlines()] == names, done.stderr


def test_the_folders_of_each_extension_are_watched(tiny):
    own = str(Path(*tiny().paths).parent)
    assert watch.Builds([tiny()]).folders() == {own}
    core = str(native.kernels_directory() / "core" / "host")
    assert watch.Builds([tiny(), native.spec("basic")]).folders() >= {own, core}


def test_a_save_during_the_first_build_is_built_after_it(monkeypatch):
    calls, began = [], threading.Event()

    def build_all(extensions):
        calls.append("begin")
        began.set()
        time.sleep(0.2)
        calls.append("end")
        return []

    monkeypatch.setattr(engine, "build_all", build_all)
    builds = watch.Builds([])
    first = threading.Thread(target=builds.make)
    first.start()
    began.wait()
    builds.make()
    first.join()
    assert calls == ["begin", "end"] * 2


def test_ctrl_c_stops_the_watch_whichever_thread_gets_the_signal(monkeypatch):
    builds = watch.Builds([])
    press = threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    monkeypatch.setattr(builds, "make", press.start)
    monkeypatch.setattr(watch, "Builds", lambda extensions: builds)
    monkeypatch.setattr(watch._extensions, "chosen", lambda names: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # SIGTERM stays as it is
    asked = argparse.Namespace(names=[], program=[])
    assert watch.run(asked) == 0


def test_of_two_runs_at_a_time_one_command_is_left(monkeypatch):
    """That after the first build, and that after a save."""
    popen, started = subprocess.Popen, []

    def slow(words, **more):
        started.append(popen(words, **more))
        time.sleep(0.2)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", slow)
    program = watch.Program(["sleep", "60"])
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(program.run)
    assert [each.poll() is None for each in started] == [False, True]
    program.stop()


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_a_command_ends_with_what_it_has_started(monkeypatch, tmp_path, stubborn):
    """A shell that is told to end leaves its commands running; either may not listen."""
    monkeypatch.setattr(watch, "_PATIENCE", 0.2 if stubborn else 30)
    told = tmp_path / "pid"
    inner = f"{stubborn}echo $$ > {told}.new; mv {told}.new {told}; while :; do sleep 0.1; done"
    program = watch.Program(["sh", "-c", f'{stubborn}sh -c "$0"; while :; do :; done', inner])
    program.run()
    while not told.exists():
        time.sleep(0.02)
    program.stop()
    assert program.process.returncode == (-signal.SIGKILL if stubborn else -signal.SIGTERM)
    status = Path(f"/proc/{told.read_text().strip()}/stat")
    assert not status.exists() or " Z " in status.read_text()


@pytest.mark.slow
def test_watch_rebuilds_and_reruns(small_checkout, watching, monkeypatch):
    monkeypatch.chdir(small_checkout)
    source = small_checkout / "kernels" / "core" / "twice.cpp"
    text = source.read_text()
    wait_for = watching(small_checkout, "--", sys.executable, "-c", PROGRAM)
    wait_for("the answer is 42")
    source.write_text(text.replace("2 * x", "3 * x"))
    wait_for("kernels/core/twice.cpp changed; new kernels after")
    wait_for("the answer is 63")
    source.write_text(text.replace("2 * x", "2 * x_"))
    wait_for("the old build stays in use")
    wait_for("x_")
    source.write_text(text)
    wait_for("the answer is 42")
