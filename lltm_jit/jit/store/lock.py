"""One builder at a time per place, and what the waiting processes learn.

The lock is the operating system's, so it is released when its holder is gone, for whatever reason.
Its file says who holds it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..user import cancel, settings
from ..user.errors import BuildError, CacheError
from . import cache, files

_open: dict[int, os.stat_result] = {}  # descriptors of this process's locks
_FIELDS = ("file", "line", "column", "message", "log")  # of an error
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_LOWEST = 3  # descriptors below are the streams', which a child process replaces


def _forget_threads() -> None:
    """A thread that held a lock does not exist in a forked child, and would never release it."""
    for descriptor in [*_open]:
        _close(descriptor)


os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def held(
    name: str, say: Callable[[str], None], look: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Hold a lock. A process that has to wait says for whom, and looks now and then how far it is.

    Raises:
        CacheError: the file system has no locks, or nothing can be written.
    """
    cancel.check()
    cache.make_builds_directory()
    said, came = False, time.monotonic()
    while True:
        with cache.writing():
            descriptor = take(name)
        if descriptor is not None:
            break
        holder = _holder(name)  # which one that has just begun is about to write
        if not said and (holder or time.monotonic() > came + 1):
            say(f"waiting for {holder or 'another process that is building'}")
            said = True
        time.sleep(0.1 if said else 0.02)
        cancel.check()
        look()
    try:
        yield
    finally:
        release(descriptor)


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Hold a lock if it is free, and tell whether it was."""
    descriptor = None
    with suppress(OSError, CacheError):  # who may not write holds no lock
        descriptor = take(name)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            release(descriptor)


def take(name: str) -> int | None:
    """A descriptor that holds a lock, with this process's name in its file; None if it is held."""
    file = file_of(name)
    mode = 0o666 if settings.flag("LLTM_JIT_TRUST_ROOT") else 0o644
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, mode)
    except FileNotFoundError:  # the cache was removed: the next try finds another
        cache.make_builds_directory()
        return None
    if descriptor < _LOWEST:
        low, descriptor = descriptor, fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(low)
    _open[descriptor] = os.fstat(descriptor)
    try:
        with suppress(PermissionError):  # another user's
            os.fchmod(descriptor, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # or it was removed, and others lock another one
            told = {"pid": os.getpid(), "host": platform.node(), "since": time.time()}
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(told).encode(), 0)
            return descriptor
    except BlockingIOError:
        pass
    except OSError as error:
        _close(descriptor)
        if error.errno not in _NO_LOCKS:
            raise
        raise CacheError(
            f"the file system of {file.parent} does not support locks; set TORCH_EXTENSIONS_DIR to "
            "a directory on another one, such as a local disk"
        ) from error
    _close(descriptor)
    return None


def release(descriptor: int) -> None:
    """Release a lock that :func:`take` gave."""
    if _is_ours(descriptor):
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also that of a copy in a forked process
    _close(descriptor)


def _close(descriptor: int) -> None:
    if _is_ours(descriptor):
        os.close(descriptor)
    _open.pop(descriptor, None)


def _is_ours(descriptor: int) -> bool:
    """Whether a descriptor still is that of a lock.

    A forked child has closed it. A program that becomes a daemon closes all that is open, and may
    reuse the number.
    """
    try:
        return os.path.samestat(os.fstat(descriptor), _open[descriptor])
    except (OSError, KeyError):
        return False


def _holder(name: str) -> str:
    """In words, who holds a lock and since when; empty if that is not written there yet."""
    try:
        told: dict[str, Any] = json.loads(file_of(name).read_text("utf-8"))
        since = time.strftime("%H:%M:%S", time.localtime(told["since"]))
        host = "" if told["host"] == platform.node() else f" on {told['host']}"
        return f"process {told['pid']}{host}, which has been building since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def file_of(name: str) -> Path:
    """The file of a lock. A few thousand serve all: two that share one wait for each other."""
    return cache.builds_directory() / "locks" / f"{name[:3]}.lock"


def record_failure(place: str, error: BuildError, blamed: Iterable[str]) -> None:
    """Tell the processes that wait for this build why it failed, and because of which files."""
    with cache.writing():
        told = {
            "text": str(error),
            "fields": {name: getattr(error, name) for name in _FIELDS},
            "time": time.time(),
            "files": {path: files.stamp_of(path) for path in blamed},
        }
        files.write_json(_failure_file(place), told)


def raise_failure_of_others(place: str, asked: float) -> None:
    """Raise the error of a build that failed while the caller waited for it.

    A process that asks later builds again, because what was missing may have been installed. So
    does one that finds that a file named by the error was edited.
    """
    try:
        told = files.read_json(_failure_file(place))
    except (OSError, ValueError):
        return
    same = all(files.stamp_of(path) == stamp for path, stamp in told["files"].items())
    if same and asked < told["time"] <= time.time():
        raise BuildError(told["text"], **told["fields"])


def _failure_file(place: str) -> Path:
    return cache.work_directory(place) / "failure.json"
