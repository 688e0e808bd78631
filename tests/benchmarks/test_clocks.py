"""The clocks of the benchmarks, and how they tell that a machine is busy."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.shared import busy, times
from benchmarks.shared.times import HOST, Times

CPU = torch.device("cpu")


def test_functions_take_turns_and_parts_of_calls_are_counted():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in ("one", "two")}
    found = times.measure(functions, 1e-4, [HOST], {"two": 0.5})
    assert list(found) == ["one", "two"]
    assert {mode for each in found.values() for mode in each} == {HOST}
    assert found["one"][HOST].count >= 7  # quartiles need them
    assert calls.index("two") < len(calls) - 1 - calls[::-1].index("one")


def test_a_peak_that_is_exceeded_is_measured_again(monkeypatch):
    found = [(1.0, 9.0), (1.5, 8.0), (3.0, 7.0), (4.0, 6.0)]
    monkeypatch.setattr(times, "_peaks", {})
    monkeypatch.setattr(times, "_peak", lambda *_: found.pop(0))
    assert times.peak(CPU, torch.float) == (1.0, 9.0)
    assert times.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert times.peak(CPU, torch.float, 2.0) == (3.0, 9.0)
    assert len(found) == 1


def test_quartiles():
    assert times.summary([5.0, 1.0, 2.0, 4.0, 3.0]) == Times(1.0, 2.0, 3.0, 4.0, 5)


SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells it")
def test_waiting_for_a_processor_is_seen():
    """Two programs on one processor."""
    measuring = f"""
import os, runpy, subprocess, sys
busy = runpy.run_path({busy.__file__!r})
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
other = subprocess.Popen([sys.executable, "-c", {SPIN.format(9)!r}])
waiting, others = busy["Waiting"](), busy["Others"]()
{SPIN.format(0.7)}
print(waiting.share(), others.share())
other.kill()
"""
    done = subprocess.run([sys.executable, "-c", measuring], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    waited, others = map(float, done.stdout.split())
    assert waited > 0.2
    assert others > 0.2
