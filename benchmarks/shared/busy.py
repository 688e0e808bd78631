"""Whether a machine had anything else to do while something was measured.

Where the system does not tell (it is Linux that does), nothing is known of it, and the spread of
the times alone says whether they can be relied on.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_THREADS = Path("/proc/self/task")
_PROCESSORS = Path("/proc/stat")
_IDLE = (3, 4)  # the columns of a processor's line that are no work: idle, and waiting for disks
LIMIT = 0.05  # of the time that threads waited: beyond it a measurement is not to be relied on
LIMIT_OF_OTHERS = 0.1  # of the processors


class Waiting:
    """The longest that one of this process's threads waited for a processor, as a share of time."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), _waited()

    def share(self) -> float:
        """Since this was made."""
        now = _waited()
        waited = max((now[one] - self._before.get(one, 0.0) for one in now), default=0.0)
        return waited / (time.perf_counter() - self._began)


def _waited() -> dict[str, float]:
    """Seconds for which each thread could have run and did not."""
    try:
        return {
            task.name: int((task / "schedstat").read_text().split()[1]) / 1e9
            for task in _THREADS.iterdir()
        }
    except (OSError, IndexError):  # no such file on this system
        return {}


class Others:
    """The share of the processors that other programs had, beside this one and what it has run."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), _work()

    def share(self) -> float:
        """Since this was made."""
        seconds = time.perf_counter() - self._began
        everything, ours = (now - then for now, then in zip(_work(), self._before, strict=True))
        return max(0.0, everything - ours) / (seconds * len(_processors()))

    def many(self) -> bool:
        """Whether that is too much to rely on the figures."""
        return self.share() > LIMIT_OF_OTHERS


def _work() -> tuple[float, float]:
    """Seconds of all programs on the processors that this one may use, and its own."""
    used = os.times()
    ours = used.user + used.system + used.children_user + used.children_system
    if not sys.platform.startswith("linux"):
        return ours, ours
    names = {f"cpu{number}" for number in _processors()}
    ticks = 0
    for line in _PROCESSORS.read_text().splitlines():
        name, *columns = line.split()
        if name in names:  # whose first columns have those of guests in them
            ticks += sum(int(n) for i, n in enumerate(columns[:8]) if i not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK"), ours


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if sys.platform.startswith("linux") else {0}
