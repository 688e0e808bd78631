"""What the tests of benchmarks share: an idle machine, a clock that needs no time, and rows."""

import pytest

from benchmarks.shared import times
from benchmarks.shared.busy import Others
from benchmarks.shared.times import Times


@pytest.fixture
def idle(monkeypatch):
    """Nothing that is measured is marked, however busy the machine is that runs the tests."""
    monkeypatch.setattr(Times, "doubtful", False)
    monkeypatch.setattr(Others, "many", lambda others: False)


@pytest.fixture
def quick_clock(monkeypatch, idle):
    """Every function runs once, and takes as many milliseconds as its place in the list says."""

    def take_turns(timers, seconds, counts):
        for timer in timers:
            timer.timeit(1)
        return [times.constant((1 + i) * 1e-3 / count) for i, count in enumerate(counts)]

    monkeypatch.setattr(times, "take_turns", take_turns)
    monkeypatch.setattr(times, "peak", lambda device, dtype, operations: (1e9, 1e9))
