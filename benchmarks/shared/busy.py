"""Whether a machine had anything else to do while something was measured.

Only Linux tells this. On other systems, the spread of the times alone says whether they can be
relied on.
"""

import os
import sys
import time
from pathlib import Path

_THREADS = Path("/proc/self/task")
_PROCESSORS = Path("/proc/stat")
_IDLE = (3, 4)  # the columns of a processor's line that are no work: idle, and waiting for disks
LIMIT = 0.05  # the share of time that threads waited; above it, a measurement is unreliable
LIMIT_OF_OTHERS = 0.1  # the share of the processors that other programs used


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
    """The share of the processors that other programs had, besides this one and its children."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), _work()

    def share(self) -> float:
        """Since this was made."""
        seconds = time.perf_counter() - self._began
        everything, ours = (now - then for now, then in zip(_work(), self._before, strict=True))
        return max(0.0, everything - ours) / (seconds * len(_processors()))

    def many(self) -> bool:
        """Whether the share is too large to rely on the figures."""
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
        if name in names:  # its first columns include those of guests
            ticks += sum(int(n) for i, n in enumerate(columns[:8]) if i not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK"), ours


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if sys.platform.startswith("linux") else {0}
