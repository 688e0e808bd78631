"""Which builds and precompiled headers are kept.

Builds are kept if they were used within a day, and for each set of flags a few more.

A process that has loaded a build keeps its library even if the file is removed.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from ..user import settings
from . import cache, lock, publish
from .cache import last_use
from .contents import digest_of

_FAILED_LOGS_KEPT = 20
_DAY = 24 * 3600  # seconds that used builds, and unfinished ones, are kept
_UNUSED = 90 * 24 * 3600  # seconds after which an unused build is removed
HEADER_RECORD = "header.json"
_HEADERS_KEPT, _HEADER_UNUSED = 2, 30 * 24 * 3600


def prune(keep: int | None = None) -> dict[str, str]:
    """Remove all but the last used builds of each set of flags, and what killed builders left.

    By default as many stay as LLTM_JIT_KEEP says, and all that were used within a day. A build that
    nobody has used for three months is removed as well. Where it is told how many to keep, it also
    looks into each build, and removes those that this version cannot read. Returns the keys of the
    builds that are not to be kept, each with why it stays; with nothing where it is removed.
    """
    asked = keep is not None
    spared = float("inf") if asked else time.time() - _DAY
    keep = keep or settings.count("LLTM_JIT_KEEP") or 1
    seen: dict[str, int] = {}
    kept = {}
    directory = cache.builds_directory()
    uses = cache.uses_of(str(directory))  # after each build, and there may be hundreds
    for key in sorted(uses, key=uses.__getitem__, reverse=True):
        flags, used = key[: cache.FLAGS], uses[key]
        seen[flags] = seen.get(flags, 0) + bool(used)
        unwanted = seen[flags] > keep and used < spared
        if (
            used
            and (unwanted or used < time.time() - _UNUSED)
            and used == last_use(directory / key)
        ):
            kept[key] = remove(key)
        elif asked or not used:
            lock.if_free(key, _remove_if_useless)  # a builder may be about to write its record
    partial = functools.partial(_remove_partial, "*/*.partial" if asked else "*.partial")
    for remove_some in (_remove_failed, _remove_debris, partial, _remove_inline, prune_headers):
        with suppress(OSError):  # others prune at the same time, or nobody may write here
            remove_some()
    return kept


def remove(key: str) -> str:
    """Remove a build; returns why it is kept, empty if it is gone."""
    try:
        publish.remove_whole(cache.builds_directory() / key)
    except FileNotFoundError:
        return ""  # somebody else was quicker
    except OSError as error:
        return f"cannot be deleted ({error.strerror})"
    return ""


def _remove_if_useless(key: str) -> None:
    """Where its builder was killed, or this version cannot read its record."""
    if not [*cache.read_records([cache.builds_directory() / key])]:
        remove(key)


def _remove_failed() -> None:
    """Keep a failed build's objects for a day, or until another one with the same flags ends."""
    for directory in cache.directories("", failed=True):
        record = next(cache.read_records([directory]), None)
        flags = directory.name[: cache.FLAGS]
        same = (*cache.records(flags), *cache.records(flags, failed=True))
        ended = max((build.created for build in same), default=0.0)
        if not record or record.created < max(time.time() - _DAY, ended):
            publish.remove_whole(directory)


def _remove_partial(names: str) -> None:
    """Remove what was being written when its writer was killed."""
    for partial in cache.builds_directory().glob(names):
        if time.time() - partial.stat().st_mtime > _DAY:
            partial.unlink(missing_ok=True)


def _remove_debris() -> None:
    for leftover in cache.builds_directory().glob("tmp-*"):
        lock.if_free(leftover.name.split("-")[1], publish.remove_leftovers)
    logs = sorted(cache.failed_directory().glob("*.*"), key=os.path.getmtime, reverse=True)
    for log in logs[2 * _FAILED_LOGS_KEPT :]:  # a log and its message each
        log.unlink(missing_ok=True)


def _remove_inline() -> None:
    """Remove sources that were given as strings, if they are a day old and have no build."""
    for folder in (cache.builds_directory() / publish.INLINE).glob("*"):
        age = time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
        if age > _DAY and not cache.directories(digest_of(folder.name)[: cache.NAME]):
            with lock.try_lock(publish.lock_of_inline(folder.name)) as mine:
                if mine is not None:
                    shutil.rmtree(folder)


def headers() -> Path:
    """The directory of all precompiled headers."""
    return cache.builds_directory() / "pch"


def size_of(directory: Path) -> int:
    """The bytes of the files in a directory, as far as nobody removes them meanwhile."""
    total = 0
    with suppress(OSError):
        for path in directory.rglob("*"):
            total += path.stat().st_size if path.is_file() else 0
    return total


def header_sizes() -> dict[str, int]:
    """The bytes of each header by its key, those used last first."""
    return {header.name: size_of(header) for header in _headers_used_last_first()}


def _headers_used_last_first() -> list[Path]:
    found = [path.parent for path in headers().glob(f"*/{HEADER_RECORD}")]
    return sorted(found, key=lambda path: last_use(path, HEADER_RECORD), reverse=True)


def prune_headers(keep: int = _HEADERS_KEPT) -> list[str]:
    """Remove all headers except those used last, and what killed makers left; returns their keys.

    A compiler that reads one keeps it open, and one that comes too late does without it.
    """
    found, oldest = _headers_used_last_first(), time.time() - _HEADER_UNUSED
    gone = [path for path in found[:keep] if last_use(path, HEADER_RECORD) < oldest] + found[keep:]
    for path in gone:
        publish.remove_whole(path)
    for left in headers().glob("tmp-*"):
        with lock.try_lock(f"pch-{left.name.split('-')[1]}") as mine:
            if mine is not None:
                shutil.rmtree(left, ignore_errors=True)
    return [path.name for path in gone]
