"""Runs ninja, and ends all of its processes when the process that wants the build is gone.

The engine starts this file by its path, with the standard library alone. The build ends when the
guard's standard input does.
"""

import glob
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress


def main() -> int:
    # The pipe gets another number: a compiler that read it as input would wait for ever.
    channel = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # A function and not SIG_IGN, which ninja would inherit.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
    return subprocess.call(sys.argv[1:])


def _end_with_parent(channel: int) -> None:
    while os.read(channel, 4096):
        pass
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
    status = main()
    if status:
        end_session(os.getpid())  # somebody may have killed ninja alone
    os._exit(status & 0xFF if status >= 0 else 128 - status)
