"""`python -m lltm_jit build` and `watch`, on a copy of the project with one operator."""

import argparse
import queue
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from small_checkout import environment, run_in

from lltm_jit.cli import build, watch

PROGRAM = (
    "import torch, lltm_jit; "
    "print('my_op gives', lltm_jit.my_op(torch.ones(1), torch.ones(1)).item(), flush=True)"
)


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        ({}, {}),
        ({"debug": True}, {"LLTM_JIT_DEBUG": "1", "CUDA_DEVICE_DEBUG": "1"}),
        ({"sanitize": "undefined"}, {"LLTM_JIT_SANITIZE": "undefined"}),
        ({"lineinfo": True}, {"LLTM_JIT_LINEINFO": "1"}),
    ],
)
def test_kinds_are_chosen_by_the_environment(flags, variables):
    kinds = {"debug": False, "sanitize": None, "lineinfo": False}
    assert build.settings(argparse.Namespace(**{**kinds, **flags})) == variables


def test_address_sanitizer_is_preloaded():
    line = build.how_to_use({"LLTM_JIT_SANITIZE": "undefined,address"}, "g++")
    assert line.startswith("LLTM_JIT_SANITIZE=undefined,address LD_PRELOAD=")
    assert "/libasan.so" in line
    assert "LD_PRELOAD" not in build.how_to_use({"LLTM_JIT_SANITIZE": "undefined"}, "g++")


def test_debug_and_release_side_by_side(checkout):
    debug = run_in(checkout, "-m", "lltm_jit", "build", "--debug", "--force", "--verbose")
    assert debug.returncode == 0, debug.stderr
    library, hint = debug.stdout.splitlines()
    assert hint == "to use it: LLTM_JIT_DEBUG=1 CUDA_DEVICE_DEBUG=1 python ..."
    assert " -O0 -g" in debug.stderr
    assert "-O3" not in debug.stderr
    release = run_in(checkout, "-m", "lltm_jit", "build", "--lineinfo")
    assert release.returncode == 0, release.stderr
    assert release.stdout.splitlines()[0] != library


def test_a_save_during_the_first_build_is_built_after_it(monkeypatch):
    calls, began = [], threading.Event()

    def load():
        calls.append("load")
        began.set()
        time.sleep(0.2)
        return "first"

    def reload_it(current, *_):
        calls.append(f"reload of {current}")
        return SimpleNamespace(build="second")

    monkeypatch.setattr(watch.native, "load", load)
    monkeypatch.setattr(watch.reload, "reload", reload_it)
    package = watch.Package()
    first = threading.Thread(target=package.reload)
    first.start()
    began.wait()
    package.reload()
    first.join()
    assert calls == ["load", "reload of first"]
    assert package.current == "second"


def test_a_command_that_does_not_end_when_told_to_is_killed(monkeypatch):
    monkeypatch.setattr(watch, "_PATIENCE", 0.2)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(60)"
    )
    program = watch.Program([])
    program.process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
    assert program.process.stdout.readline() == b"ready\n"
    program.stop()
    program.process.stdout.close()
    assert program.process.returncode == -signal.SIGKILL


@pytest.fixture
def watching(checkout):
    """A running `watch` with a program, and the lines that both print."""
    pytest.importorskip("watchfiles")
    process = subprocess.Popen(
        [sys.executable, "-m", "lltm_jit", "watch", "--", sys.executable, "-c", PROGRAM],
        cwd=checkout,
        env=environment(checkout),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout]).start()

    def wait_for(text):
        seen = []
        while True:
            try:
                seen.append(lines.get(timeout=300))
            except queue.Empty:
                pytest.fail(f"no {text!r} in {seen}")
            if text in seen[-1]:
                return

    yield wait_for
    process.terminate()
    assert process.wait(timeout=30) == 0


def test_watch_rebuilds_and_reruns(checkout, watching):
    header = checkout / "kernels" / "my_op" / "my_op.h"
    text = header.read_text()
    watching("my_op gives 2.0")
    header.write_text(text.replace("T(3) * in[0] - in[1]", "T(5) * in[0] - in[1]"))
    watching("kernels/my_op/my_op.h changed; new kernels after")
    watching("my_op gives 4.0")
    header.write_text(text.replace("T(3) * in[0] - in[1]", "T(3) * in[0] - in_1"))
    watching("the old build stays in force")
    watching("in_1")
    header.write_text(text)
    watching("my_op gives 2.0")
