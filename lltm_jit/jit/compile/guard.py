"""Runs ninja, and ends all of ninja's processes when the process that wants the build is gone.

The engine starts this file by its path, with the standard library alone. Its arguments are the
process that wants the build, and ninja's command. SIGHUP ends the build. The engine sends it, and
so does the kernel when the thread that started the guard is gone.
"""

import ctypes
import glob
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> int:
    # Functions and not SIG_IGN, which ninja would inherit. The program may have blocked both.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.signal(signal.SIGHUP, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP, signal.SIGTERM})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != parent:  # it was gone before
        return 1
    return subprocess.call(command)


def _end(*_: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # another one would begin anew
    end_session(os.getpid())
    os._exit(1)


def end_session(leader: int) -> None:
    """End what a guard started: ninja, and the compilers, each in a process group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)  # ninja, which ends its compilers
    began = time.monotonic()
    told: set[int] = set()
    while (others := _session(leader)) and time.monotonic() < began + 3:
        late = time.monotonic() > began + 1  # SIGTERM lets compilers remove their temporary files
        for pid in others if late else others - told:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        told |= others
        time.sleep(0.02)


def _session(leader: int) -> set[int]:
    """The processes of a session except its leader; none if the system cannot say."""
    found = set()
    for file in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(file, errors="replace") as stat:  # a name may be any bytes
                pid, _, rest = stat.read().partition(" ")
        except OSError:
            continue  # the process has just ended
        state, _, _, session = rest.rpartition(")")[2].split()[:4]
        if int(session) == leader != int(pid) and state != "Z":
            found.add(int(pid))
    return found


if __name__ == "__main__":
    status = main(int(sys.argv[1]), sys.argv[2:])
    if status:
        end_session(os.getpid())  # somebody may have killed ninja alone
    os._exit(status & 0xFF if status >= 0 else 128 - status)
