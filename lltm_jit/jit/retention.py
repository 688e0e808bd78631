"""Which builds stay: those in use, and the newest few of each set of flags."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import cache, knobs, lock, publish
from .cache import RECORD

if sys.platform != "win32":
    import fcntl

_KEY = r"[0-9a-f]{20}"
_FAILED_LOGS_KEPT = 20
_STALE = 24 * 3600  # seconds after which nobody wants a half-written file, or half of a build

_held: dict[str, int] = {}  # open descriptors by key; the lock lasts as long as the process


def hold(key: str) -> bool:
    """Mark a build as used by this process, so that it is not pruned.

    Needs no right to write. False when the build is not there, or is being removed just now.
    """
    path = cache.builds_directory() / key / RECORD
    if sys.platform == "win32" or key in _held:
        return path.exists()  # Windows itself keeps a loaded library from being removed
    try:
        descriptor = cache.open_at_once(path, os.O_RDONLY)
    except OSError:
        return False
    _lock(descriptor, fcntl.LOCK_SH)
    if not _is_at(descriptor, path):
        os.close(descriptor)
        return False
    _held[key] = descriptor
    return True


def release(key: str) -> None:
    """Take the mark away from a build that turned out to be damaged."""
    if key in _held:
        os.close(_held.pop(key))


def prune(keep: int | None = None) -> dict[str, str]:
    """Remove all but the newest builds of each set of flags, and what killed builders left.

    Args:
        keep: how many to keep; by default LLTM_JIT_KEEP.

    Returns:
        The keys of all but the newest builds, each with why it stays, as one in use by any process
        does; with nothing where it is removed.
    """
    if keep is None:
        keep = knobs.count("LLTM_JIT_KEEP") or 1
    seen: dict[str, int] = {}
    kept = {}
    for record in cache.records():
        seen[record.flags_key] = seen.get(record.flags_key, 0) + 1
        if seen[record.flags_key] > keep:
            kept[record.key] = remove(record.key)
    for remove_rest in (_remove_failed, _remove_debris):
        with suppress(OSError):  # others prune at the same time, or nobody may write here
            remove_rest()
    return kept


def remove(key: str) -> str:
    """Remove a build unless it is in use; why it stays, empty when it is gone."""
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
    """Whether no process has the build loaded; none can begin to while this lasts."""
    path = cache.builds_directory() / key / RECORD
    if key in _held or not path.exists():
        yield key not in _held
        return
    # Open for writing: on network file systems an exclusive lock asks for it.
    descriptor = os.open(path, os.O_RDWR)
    try:
        yield sys.platform == "win32" or _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def _remove_if_useless(key: str) -> None:
    if _is_useless(cache.builds_directory() / key):
        remove(key)


def _is_useless(directory: Path) -> bool:
    """Without a record (its builder was killed), or with one that this version cannot read."""
    try:
        return cache.read_record(directory) is None
    except cache.DamagedBuild:
        return True


def _lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return False  # in use, or a file system without locks: then nothing is removed
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _remove_failed() -> None:
    """Keep the objects of a failed build for a day, or until another with the same flags ends."""
    ended: dict[str, float] = {}
    for build in (*cache.records(), *cache.records(failed=True)):
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


def _remove_debris() -> None:
    directory = cache.builds_directory()
    for leftover in directory.glob("tmp-*"):
        lock.if_free(leftover.name.split("-")[1], publish.remove_leftovers)
    for build in directory.glob("*"):
        if re.fullmatch(_KEY, build.name) and _is_useless(build):
            lock.if_free(build.name, _remove_if_useless)
    for partial in (*directory.glob("*.partial"), *directory.glob("*/*.partial")):
        if time.time() - partial.stat().st_mtime > _STALE:
            partial.unlink(missing_ok=True)
    logs = sorted(cache.failed_directory().glob("*.*"), key=os.path.getmtime, reverse=True)
    for log in logs[2 * _FAILED_LOGS_KEPT :]:  # a log and its message each
        log.unlink(missing_ok=True)
