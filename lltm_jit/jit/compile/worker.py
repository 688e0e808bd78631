"""The process that compiles: started by file path, with the standard library.

It reads one line of JSON from standard input, and keeps reading. When that input ends, the process
that requested the build is gone, and everything started here is ended.
"""

import glob
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress


def main() -> int:
    """Do what the request describes; 0 when it is done.

    Without a build file torch writes it. With one, ninja makes the product.
    """
    channel = _own_input()
    with open(channel, "rb", buffering=0, closefd=False) as stdin:
        request = json.loads(stdin.readline())
    # A function, for ninja inherits the default.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
    if request["build_file"]:
        command = [request["ninja"], "-f", request["build_file"], "-v", request["product"]]
        jobs = ["-j", os.environ["MAX_JOBS"]] if "MAX_JOBS" in os.environ else []
        return subprocess.call([*command, *jobs], cwd=request["directory"])
    sys.path.insert(0, os.path.dirname(__file__))
    torch_build_file = importlib.import_module("torch_build_file")
    sys.path[:] = request["sys_path"]  # torch must not find the modules beside this one
    return torch_build_file.write(request)


def _own_input() -> int:
    """Standard input under another number: a compiler that read it would wait for ever."""
    channel = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _end_with_parent(channel: int) -> None:
    while os.read(channel, 4096):
        pass
    end_session(os.getpid())
    os._exit(1)


def end_session(leader: int) -> None:
    """End what a worker started: ninja, and the compilers, each in a process group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)  # ninja, which ends its compilers
    began = time.monotonic()
    told: set[int] = set()
    while (others := session(leader)) and time.monotonic() < began + 3:
        late = time.monotonic() > began + 1  # compilers that are told remove their temporary files
        for pid in others if late else others - told:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # a paused process gets no other signal
        told |= others
        time.sleep(0.02)


def session(leader: int) -> set[int]:
    """The processes of a session except its leader; none if the system cannot say."""
    found = set()
    for file in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(file, errors="replace") as stat:  # a name may be any bytes
                pid, _, rest = stat.read().partition(" ")
        except OSError:
            continue  # just ended
        state, _, _, session = rest.rpartition(")")[2].split()[:4]
        if int(session) == leader != int(pid) and state != "Z":
            found.add(int(pid))
    return found


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the process that asked for the build has ended
        status = 1
    if status:
        end_session(os.getpid())  # somebody may have killed ninja alone
    os._exit(status)  # nothing here is worth the second that torch takes to unload
