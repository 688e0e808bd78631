"""Which builds are kept: those in use, and for each set of flags the few that were used last.

A process that has a build loaded holds a lock on one byte of a shared file, at an offset that
follows from the build's key. So it needs only one descriptor, and a user who can only read the file
cannot keep others from loading.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import cache, knobs, lock, publish
from .cache import RECORD, USERS, Record

if sys.platform != "win32":
    import fcntl

_KEY = r"[0-9a-f]{20}"
_FAILED_LOGS_KEPT = 20
_STALE = 24 * 3600  # seconds after which nobody wants a half-written file, or half of a build
_UNUSED = 90 * 24 * 3600  # seconds after which a build goes that nobody has loaded

_users: dict[Path, int] = {}  # a descriptor of the file for each root, as long as the process lasts


def candidates(request: str) -> list[Path]:
    """The builds of a request, the one used last first; they differ in the files they were made
    from.

    The names of all builds start with half of the request's key; the rest stands for the files.
    """
    start = request[:10]
    try:
        names = os.listdir(cache.builds_directory())
    except OSError:
        return []
    found = [cache.builds_directory() / name for name in names if name.startswith(start)]
    return sorted(found, key=last_use, reverse=True) if len(found) > 1 else found


def last_use(directory: Path, record: str = RECORD) -> float:
    """When a build, or anything else with a record, was last used."""
    try:
        return (directory / record).stat().st_mtime
    except OSError:
        return 0.0  # removed just now


def hold(key: str) -> bool:
    """Protect a build from pruning as long as this process lasts.

    Needs no write access. False if the build does not exist, or is just being removed.
    """
    record = cache.builds_directory() / key / RECORD
    free = True
    with suppress(OSError):  # no right to open it, or a file system without locks
        free = _lock(_users_file(), key, "F_RDLCK")
    if free and not record.exists():
        release(key)
        return False
    return free


def mark_used(directory: Path) -> None:
    """Note that a build was used now."""
    with suppress(OSError):
        os.utime(directory / RECORD)


def release(key: str) -> None:
    """Release a build that turned out to be damaged, or to be of other files."""
    with suppress(OSError):
        _lock(_users_file(), key, "F_UNLCK")


def _users_file() -> int:
    file = cache.builds_directory() / USERS
    # Somebody may have removed the whole directory, and the file with it.
    if file not in _users or not os.path.samestat(os.fstat(_users[file]), file.stat()):
        _users[file] = cache.open_at_once(file, os.O_RDONLY)
    return _users[file]


def _lock(descriptor: int, key: str, kind: str) -> bool:
    """Lock the byte of a key without waiting, as long as the descriptor is open; False if it
    cannot.
    """
    if sys.platform == "win32":
        return True  # Windows itself keeps a loaded library from being removed
    place = int(key[5:], 16)  # half of the first ten digits is many builds'
    request = struct.pack("hhqqi4x", getattr(fcntl, kind), os.SEEK_SET, place, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def prune(keep: int | None = None) -> dict[str, str]:
    """Remove all but the last used builds of each set of flags, and what killed builders left.

    A build that nobody has used for three months is removed as well.

    Args:
        keep: how many to keep; by default LLTM_JIT_KEEP.

    Returns:
        The keys of all other builds, each with why it stays, as one in use by any process
        does; with nothing where it is removed.
    """
    from . import pch  # a cached import does without it

    if keep is None:
        keep = knobs.count("LLTM_JIT_KEEP") or 1
    seen: dict[str, int] = {}
    kept = {}
    records = cache.records()  # once: each is some kilobytes of JSON, and there may be hundreds
    uses = [(last_use(record.directory), record) for record in records]
    for used, record in sorted(uses, key=lambda use: use[0], reverse=True):
        seen[record.flags_key] = seen.get(record.flags_key, 0) + 1
        if seen[record.flags_key] > keep or used < time.time() - _UNUSED:
            kept[record.key] = remove(record.key)
    remove_rest = (
        functools.partial(_remove_failed, records),
        functools.partial(_remove_debris, {record.key for record in records}),
        pch.prune,
    )
    for remove_some in remove_rest:
        with suppress(OSError):  # others prune at the same time, or nobody may write here
            remove_some()
    return kept


def remove(key: str) -> str:
    """Remove a build unless it is in use; returns why it is kept, empty if it is gone."""
    try:
        with _unused(key) as unused:
            if unused:
                publish.remove_whole(cache.builds_directory() / key)
    except FileNotFoundError:
        return ""  # somebody else was quicker
    except OSError as error:
        return f"cannot be deleted ({error.strerror})"
    return "" if unused else "in use"


@contextmanager
def _unused(key: str) -> Iterator[bool]:
    """Whether no process has the build loaded; none can load it while this lasts."""
    # Of its own, so that it sees what this process holds; an exclusive lock asks for writing.
    descriptor = os.open(cache.builds_directory() / USERS, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _lock(descriptor, key, "F_WRLCK")
    finally:
        os.close(descriptor)


def _remove_if_useless(key: str) -> None:
    if _is_useless(cache.builds_directory() / key):
        remove(key)


def _is_useless(directory: Path) -> bool:
    """Whether it has no record (its builder was killed), or one that this version cannot read."""
    try:
        return cache.read_record(directory) is None
    except cache.DamagedBuild:
        return True


def _remove_failed(records: list[Record]) -> None:
    """Keep a failed build's objects for a day, or until another one with the same flags ends."""
    ended: dict[str, float] = {}
    for build in (*records, *cache.records(failed=True)):
        ended[build.flags_key] = max(build.created, ended.get(build.flags_key, 0.0))
    for directory in cache.failed_directory().glob("*"):
        if not re.fullmatch(_KEY, directory.name):
            continue
        try:
            record = cache.read_record(directory)
        except cache.DamagedBuild:
            record = None
        oldest = time.time() - _STALE
        if not record or record.created < max(oldest, ended.get(record.flags_key, oldest)):
            publish.remove_whole(directory)


def _remove_debris(readable: set[str]) -> None:
    directory = cache.builds_directory()
    for leftover in directory.glob("tmp-*"):
        lock.if_free(leftover.name.split("-")[1], publish.remove_leftovers)
    for build in directory.glob("*"):
        if build.name in readable or not re.fullmatch(_KEY, build.name):
            continue
        if _is_useless(build):  # and not only newer than the list
            lock.if_free(build.name, _remove_if_useless)
    for partial in (*directory.glob("*.partial"), *directory.glob("*/*.partial")):
        if time.time() - partial.stat().st_mtime > _STALE:
            partial.unlink(missing_ok=True)
    logs = sorted(cache.failed_directory().glob("*.*"), key=os.path.getmtime, reverse=True)
    for log in logs[2 * _FAILED_LOGS_KEPT :]:  # a log and its message each
        log.unlink(missing_ok=True)
