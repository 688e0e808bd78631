"""Several extensions at the same time: nothing goes on beyond the call."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid

from lltm_jit.jit import BuildError, Spec
from lltm_jit.jit.loading import engine
from lltm_jit.jit.user.cancel import Cancelled, cancelled_by


@pytest.fixture
def gate(tmp_path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def pair(bench, gate) -> list[Spec]:
    """One whose compiler waits at a gate, and one that fails once it is there."""
    slow = bench.write("slow/slow.cpp", f"//! wait {gate}\n")
    wrong = bench.write("wrong/wrong.cpp", f"//! after {gate}\n//! error wrong\n")
    return [Spec("_C", (str(path.parent),)) for path in (slow, wrong)]


def test_an_error_cancels_the_others(pair, gate):
    before = {*threading.enumerate()}  # some may be those of other tests, which end
    began = time.monotonic()
    with pytest.raises(BuildError, match="error: wrong"):
        engine.build_all(pair)
    assert time.monotonic() - began < 100  # the compiler at the gate waits for minutes
    assert not alive(compiler_pid(gate))
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize("how", [KeyboardInterrupt, Cancelled])
def test_ctrl_c_and_a_caller_that_is_cancelled_cancel_all(pair, gate, how):
    unwanted = threading.Event()

    def end():
        compiler_pid(gate)
        os.kill(os.getpid(), signal.SIGINT) if how is KeyboardInterrupt else unwanted.set()

    threading.Thread(target=end).start()
    with cancelled_by(unwanted), pytest.raises(how):
        engine.build_all(pair[:1])
    assert not alive(compiler_pid(gate))
