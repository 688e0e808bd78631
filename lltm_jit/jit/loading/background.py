"""The build that an import starts: a child process runs the command ``build`` in the background.

The kernel ends the child when the thread of the import is gone, so it never outlives this process;
the objects that it has compiled are kept. The first use of an extension waits for the child's lock
of that extension, or builds the extension itself. As soon as this process loads another extension,
the child is ended, because the user's own work goes first.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ..user.errors import LltmJitError

if TYPE_CHECKING:
    from ..request.spec import Spec

_LOCK = "import"  # the child holds it, so that the other ranks of a job start none
_NICE = 5
_PATIENCE = 2.0  # seconds that a child has to end
# The command is not `-m`, which would import from the current directory first. SIGTERM, from this
# process or from the kernel, ends the child at once while it imports, because Ctrl-C may get lost
# then. Once the child builds, SIGTERM acts like Ctrl-C, and the objects compiled by then are kept.
# It is not SIGHUP, which a Python that begins below `nohup` ignores.
_CODE = f"""import ctypes, json, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit()
os.nice({_NICE})
sys.path[:] = json.loads(sys.argv.pop(1))
from lltm_jit.cli import main
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main())
"""

_child: subprocess.Popen[bytes] | None = None
_names: set[str] = set()  # the extensions that the child builds
_turn = threading.Lock()


def start(specs: list[Spec]) -> None:
    """Have a child build extensions of this package, unless another process already does.

    If no child can be started, the first use builds them.
    """
    from ..compile.ninja import interpreter
    from ..store import cache, lock

    global _child
    with _turn, suppress(OSError, LltmJitError):
        wanted = _names | {spec.name for spec in specs}
        _end()
        cache.make_builds_directory()
        held = lock.take(_LOCK)
        if held is None:
            return
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        told = [str(os.getpid()), path]
        try:
            _child = subprocess.Popen(
                [interpreter(), "-I", "-c", _CODE, *told, "build", *sorted(wanted)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LLTM_JIT_AT_IMPORT": "0"},
                start_new_session=True,
                pass_fds=[held],
            )
        finally:
            lock.close(held)
        _names.update(wanted)


def stand_back(spec: Spec) -> None:
    """End the child, unless the caller is about to wait for what it builds."""
    if _child is not None and (_child.poll() is not None or spec.name not in _names):
        with _turn:
            _end()


def collect(name: str) -> None:
    """End the child once all of its extensions are in use."""
    _names.discard(name)
    if not _names:
        with _turn:
            _end()


def _end() -> None:
    """End the child, and wait for it: if this is process 1 of a container, nobody else does."""
    global _child
    child, _child = _child, None
    _names.clear()
    if child is not None:
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_PATIENCE)


def _forget() -> None:
    """A forked process has no child: the child is its parent's."""
    global _turn
    _turn = threading.Lock()
    if _child is not None:
        _child.returncode = 0  # not ours to wait for
    _end()


os.register_at_fork(after_in_child=_forget)
atexit.register(_end)
