"""Several extensions at the same time: nothing goes on beyond the call."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid
from lltm_jit.jit.loading.extension import Extension

from lltm_jit.jit import BuildError, BuildSpec
from lltm_jit.jit.loading import parallel
from lltm_jit.jit.user.cancel import Cancelled, cancelled_by


@pytest.fixture
def gate(tmp_path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def pair(bench, tmp_path, gate) -> list[Extension]:
    """One whose compiler waits at a gate, and one that fails once it is there."""
    texts = {
        "slow": f"//! wait {gate}\n",
        "wrong": f"//! after {gate}\n//! error wrong\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.cpp").write_text(text)
    return [Extension("_C", partial(BuildSpec.from_directory, "_C", tmp_path / n)) for n in texts]


def test_an_error_cancels_the_others(pair, gate):
    before = {*threading.enumerate()}  # some may be those of other tests, which end
    with pytest.raises(BuildError, match="error: wrong"):
        parallel.build_all(pair)
    assert not alive(compiler_pid(gate))
    assert {*threading.enumerate()} <= before


def test_ctrl_c_cancels_all(pair, gate):
    def interrupt():
        compiler_pid(gate)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        parallel.build_all(pair[:1])
    assert not alive(compiler_pid(gate))


def test_a_caller_that_is_cancelled_cancels_all(pair, gate):
    unwanted = threading.Event()

    def cancel():
        compiler_pid(gate)
        unwanted.set()

    threading.Thread(target=cancel).start()
    with cancelled_by(unwanted), pytest.raises(Cancelled):
        parallel.build_all(pair[:1])
    assert not alive(compiler_pid(gate))
