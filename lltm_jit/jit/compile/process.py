"""Run the worker: its environment, its output line by line, and its end in every case."""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..machine.toolchain import Toolchain
from ..request.spec import BuildSpec
from ..user import cancel
from ..user.errors import ToolchainError
from ..user.progress import FAILED
from .worker import end_session, session

_WORKER = Path(__file__).with_name("worker.py")
stand_back = threading.Event()  # set while this process's compilers are paused
_inputs: set[int] = set()  # ends of pipes that tell workers that this process lives
_LAST_WORDS = 0.3  # seconds of silence after which a compiler that failed has said everything
NINJA_STATUS = "[%f/%t %e] "
# Those of the pool (see jobs.py), and what makes nvcc tell less.
_LEFT_OUT = ("MAX_JOBS", "MAKEFLAGS", "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES")


def interpreter() -> str:
    """The path of Python. In a program that embeds it, ``sys.executable`` may be that program."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = (os.path.join(prefix, "bin") for prefix in (sys.prefix, sys.base_prefix))
    beside = (os.path.join(folder, name) for folder in folders for name in (version, "python3"))
    for path in (sys.executable or "", *beside):
        if re.match(r"(?i)python|pypy", os.path.basename(path)) and os.access(path, os.X_OK):
            return path
    raise ToolchainError(
        f"there is no {version} in {sys.prefix}/bin, and sys.executable is {sys.executable!r}; "
        "set sys.executable to the Python that is to run the compilers"
    )


@contextmanager
def build_environment(
    directory: Path, spec: BuildSpec, toolchain: Toolchain, ninja: Path
) -> Iterator[dict[str, str]]:
    """The environment variables that a build in a directory reads, as this engine resolved them."""
    environment = {name: os.environ[name] for name in os.environ if name not in _LEFT_OUT}
    environment["NINJA_STATUS"] = NINJA_STATUS
    environment["LC_ALL"] = "C.UTF-8"  # compilers in English, file names as they are
    if toolchain.cxx:
        environment["CXX"] = toolchain.cxx
        if len(shlex.split(toolchain.cxx)) > 1:
            environment["TORCH_NO_COMPILER_WRAPPER"] = "1"  # which may be one of the words
    if spec.with_cuda and toolchain.cuda_home:
        environment["CUDA_HOME"] = toolchain.cuda_home
        environment["TORCH_CUDA_ARCH_LIST"] = ";".join(spec.architectures)
    # The worker uses no GPU: seeing none spares it the start of the driver.
    environment["CUDA_VISIBLE_DEVICES"] = ""
    # torch takes ninja from PATH; what else lies beside it must not come before the compilers.
    # The leftovers of a killed process go with the directory.
    with tempfile.TemporaryDirectory(prefix="ninja-", dir=directory) as place:
        # A copy would lose what lies beside it, and cannot run where /tmp is noexec.
        os.symlink(ninja.absolute(), Path(place, ninja.name))
        environment["PATH"] = os.pathsep.join([place, os.environ.get("PATH", os.defpath)])
        yield environment


def run_worker(
    request: dict[str, Any],
    environment: dict[str, str],
    on_line: Callable[[str], None],
    on_tick: Callable[[list[str]], None],
    tick: float,
) -> int:
    """Run one build in a worker, and pass on its output.

    While there is no output, ``on_tick`` gets the running commands every ``tick`` seconds.

    Returns the worker's exit status, negative if a signal ended it. However this function is left,
    no process that it started survives.
    """
    # Without torch, the worker needs no site-packages, and starts in a third of the time.
    options = ["-I", "-S"] if request["build_file"] else ["-I"]
    command = [interpreter(), *options, "-X", "utf8", str(_WORKER)]
    try:
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C goes to us alone; we end the worker in order
        )
    except OSError as error:
        raise ToolchainError(f"cannot start {command[0]}: {error.strerror}") from error
    assert worker.stdin is not None
    assert worker.stdout is not None
    _inputs.add(worker.stdin.fileno())
    try:
        # Programs put paths of any type there, which Python passes over.
        request = {**request, "sys_path": [entry for entry in sys.path if isinstance(entry, str)]}
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()
        _stream(worker.stdout, worker, on_line, on_tick, tick)
        return worker.wait()
    except BrokenPipeError:
        return worker.wait()
    finally:
        _end(worker)


def _stream(
    output: IO[bytes],
    worker: subprocess.Popen[bytes],
    on_line: Callable[[str], None],
    on_tick: Callable[[list[str]], None],
    tick: float,
) -> None:
    """Pass on lines until the output ends, or the worker has ended and only strays hold it open."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read() -> None:
        with output:  # closed here, because strays may hold the other end open
            for line in output:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    ended, failed, heard, still = False, False, 0.0, False
    while True:
        cancel.check()
        if still or stand_back.is_set():
            still = stand_back.is_set()
            for pid in session(worker.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP if still else signal.SIGCONT)
        try:
            line = lines.get(timeout=tick)
        except queue.Empty:
            if ended:
                return
            if failed and time.monotonic() > heard + _LAST_WORDS:
                _hang_up(worker)  # ninja would wait for the compilers that still run
            ended = worker.poll() is not None
            on_tick(_running_commands(worker.pid))
            continue
        if line is None:
            return
        failed, heard = failed or line.startswith(FAILED.encode()), time.monotonic()
        on_line(line.decode(errors="replace").rstrip("\r\n"))


def _running_commands(worker: int) -> list[str]:
    """The commands that ninja, the worker's child, is running; empty if the system cannot say."""
    found = []
    for ninja in _children(worker):
        for child in _children(ninja):
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # just ended
            arguments = words.rstrip("\0").split("\0")
            in_shell = len(arguments) == 3 and arguments[1] == "-c"
            found.append(arguments[2] if in_shell else " ".join(arguments))
    return found


def _children(pid: int | str) -> list[str]:
    found = []
    with suppress(OSError):  # just ended, or not Linux
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            found += children.read_text().split()
    return found


def descendants(pid: int) -> list[int]:
    """A process, its children, and theirs; the process alone where the system cannot say."""
    return [pid, *(each for child in _children(pid) for each in descendants(int(child)))]


def _hang_up(worker: subprocess.Popen[bytes]) -> None:
    """Tell a worker that is still running to end what it started."""
    assert worker.stdin is not None
    if not worker.stdin.closed:
        _inputs.discard(worker.stdin.fileno())
        with suppress(BrokenPipeError):
            worker.stdin.close()


def _end(worker: subprocess.Popen[bytes]) -> None:
    _hang_up(worker)
    try:
        worker.wait(timeout=5)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    if worker.returncode:
        end_session(worker.pid)  # ninja and the compilers outlive a worker that was killed


def _let_go() -> None:
    """In a forked child, close the pipe: its copy would keep the worker alive after the parent."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _inputs:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _inputs.clear()


os.register_at_fork(after_in_child=_let_go)
