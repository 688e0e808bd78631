"""One builder at a time per place; the others wait, and see who it is.

The lock belongs to the operating system, which releases it when its holder dies, for any reason.
The lock's file says who holds it.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..user import settings
from ..user.errors import CacheError, check_wanted
from . import cache

_open: dict[int, os.stat_result] = {}  # descriptors of this process's locks


def _forget_threads() -> None:
    """A thread that held a lock does not exist in a forked child, and would never release it."""
    for descriptor in [*_open]:
        close(descriptor)


os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def held(
    name: str, say: Callable[[str], None], look: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Hold a lock. A process that has to wait says for whom, and calls ``look`` now and then.

    Raises:
        CacheError: the file system has no locks, or nothing can be written.
    """
    check_wanted()
    cache.make_builds_directory()
    said, came = False, time.monotonic()
    while True:
        with cache.writing():
            descriptor = take(name)
        if descriptor is not None:
            break
        holder = _holder(name)  # empty until a new holder has written it
        if not said and (holder or time.monotonic() > came + 1):
            say(f"waiting for {holder or 'another process that is building'}")
            said = True
        time.sleep(0.1 if said else 0.02)
        check_wanted(f"waiting for {holder or 'another process'}")
        look()
    try:
        yield
    finally:
        _release(descriptor)


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Hold a lock if it is free; tells whether it was free."""
    descriptor = None
    with suppress(OSError, CacheError):  # a user who may not write gets no lock
        descriptor = take(name)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _release(descriptor)


def take(name: str) -> int | None:
    """A descriptor that holds a lock; None if another process holds it. The file says who."""
    mode = 0o666 if settings.flag("LLTM_JIT_TRUST_ROOT") else 0o644
    try:
        descriptor = os.open(file_of(name), os.O_RDWR | os.O_CREAT, mode)
    except FileNotFoundError:  # the cache was removed: the next try makes a new file
        cache.make_builds_directory()
        return None
    _open[descriptor] = os.fstat(descriptor)
    taken = False
    try:
        with suppress(PermissionError):  # the file is another user's
            os.fchmod(descriptor, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # else it was removed, and others lock a new file
            since = time.strftime("%H:%M:%S")
            told = (
                f"process {os.getpid()} on {platform.node()}, which has been building since {since}"
            )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, told.encode(), 0)
            taken = True
    except BlockingIOError:
        pass
    finally:
        if not taken:
            close(descriptor)
    return descriptor if taken else None


def _release(descriptor: int) -> None:
    if _is_ours(descriptor):
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also releases a forked process's copy
    close(descriptor)


def close(descriptor: int) -> None:
    """Close the descriptor of a lock. A child that was given it goes on holding the lock."""
    if _is_ours(descriptor):
        os.close(descriptor)
    _open.pop(descriptor, None)


def _is_ours(descriptor: int) -> bool:
    """Whether a descriptor is still that of a lock.

    A forked process has closed it. A program that becomes a daemon closes all open files, and may
    reuse the number for a file of its own.
    """
    with suppress(OSError, KeyError):
        return os.path.samestat(os.fstat(descriptor), _open[descriptor])
    return False


def _holder(name: str) -> str:
    """Who holds a lock and since when; empty if that is not written there yet."""
    with suppress(OSError):
        told = file_of(name).read_text("utf-8", "replace")
        return told.replace(f" on {platform.node()},", ",")
    return ""


def file_of(name: str) -> Path:
    """The file of a lock. A few thousand files serve all locks, so two may share one."""
    return cache.builds_directory() / "locks" / f"{name[:3]}.lock"
