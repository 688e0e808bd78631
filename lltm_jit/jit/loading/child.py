"""The child that builds what an import did not find, while the program goes on.

It builds as any other process would, with the environment of this moment, and ends with this
process. The first use of what it builds waits for the lock of that build. The lock is taken here
and inherited by the child, so that of several processes that import only one starts a child.

While this process builds something itself, the child's compilers stand still: together they would
be more than MAX_JOBS.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from ..compile.process import interpreter
from ..machine.toolchain import Toolchain
from ..request.fingerprint import Request
from ..request.spec import BuildSpec
from ..store import lock
from ..user.errors import LltmJitError

_MAIN = Path(__file__).with_name("child_main.py")
_NO_SIGNAL = socket.MSG_NOSIGNAL  # it would end programs that do not ignore it

_channel: socket.socket | None = None  # when it closes, the child knows that this process ended
_identity: os.stat_result  # of the channel's descriptor
_wanted: list[tuple[str, BuildSpec, Toolchain]] = []
_builds: set[object] = set()  # that this process makes itself
_turn = threading.Lock()


def start(wanted: Sequence[tuple[BuildSpec, Toolchain]]) -> None:
    """Have a child build extensions, except those that another process is building.

    If no child can be started, the first use builds them.
    """
    with _turn, ExitStack() as held, suppress(OSError, LltmJitError):
        locks = {}
        for each in [(Request.of(spec, tools).key, spec, tools) for spec, tools in wanted]:
            descriptor = held.enter_context(lock.try_lock(lock.name_of(each[0])))
            if descriptor is None:
                break  # whoever holds it builds the others, too
            locks[each[0]] = descriptor
            _wanted.append(each)
        if locks:
            _start(locks)


def _start(locks: dict[str, int]) -> None:
    """Start the child, which goes on with what an earlier one was to build."""
    global _channel, _identity
    _leave()
    _channel, theirs = socket.socketpair()
    _identity = os.fstat(_channel.fileno())
    with theirs:
        starter = subprocess.Popen(
            [interpreter(), "-I", str(_MAIN)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[*locks.values()],
        )
    path = [entry for entry in sys.path if isinstance(entry, str)]
    packages = {"torch": os.path.dirname(torch.__file__), "lltm_jit": str(_MAIN.parents[2])}
    request = pickle.dumps((path, packages)) + pickle.dumps((locks, _wanted))
    try:
        _channel.sendall(request + _order(), _NO_SIGNAL)
        _channel.setblocking(False)
    finally:
        starter.wait()


def _leave() -> None:
    """End the child; what it has compiled is kept."""
    global _channel
    if _channel is not None:
        if _is_open(_channel):
            _channel.close()
        else:
            _channel.detach()
        _channel = None


def _is_open(channel: socket.socket) -> bool:
    """A program that becomes a daemon closes all that is open, and may reuse the number."""
    try:
        return os.path.samestat(os.fstat(channel.fileno()), _identity)
    except OSError:
        return False


@contextmanager
def stands_back() -> Iterator[None]:
    """Pause the child's compilers inside the ``with`` block."""
    build = object()
    try:
        _tell(_builds.add, build)
        yield
    finally:
        _tell(_builds.discard, build)


def _tell(change: Callable[[object], None], build: object) -> None:
    with _turn:
        change(build)
        if _channel is not None:
            try:
                alive = _is_open(_channel) and _channel.send(_order(), _NO_SIGNAL)
            except OSError:
                alive = 0
            if not alive:
                _leave()


def _order() -> bytes:
    return b"1" if _builds else b"0"


def _forget() -> None:
    """A forked child keeps nobody's child alive."""
    global _turn
    _turn = threading.Lock()
    _leave()
    _wanted.clear()
    _builds.clear()


os.register_at_fork(after_in_child=_forget)
