"""Which builds and precompiled headers are kept.

Builds are kept if they were used within a day, and for each set of flags a few more.

A process that has a build loaded keeps its library even where the file is removed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from ..user import settings
from . import cache, lock, publish
from .cache import Record, last_use

_KEY = r"[0-9a-f]{20}"
_FAILED_LOGS_KEPT = 20
_DAY = 24 * 3600  # seconds for which what was used is kept, and what is half done
_UNUSED = 90 * 24 * 3600  # seconds after which a build goes that nobody has loaded
HEADER_RECORD = "header.json"
_HEADERS_KEPT, _HEADER_UNUSED = 2, 30 * 24 * 3600


def prune(keep: int | None = None) -> dict[str, str]:
    """Remove all but the last used builds of each set of flags, and what killed builders left.

    By default as many stay as LLTM_JIT_KEEP says, and all that were used within a day. A build that
    nobody has used for three months is removed as well. Returns the keys of the builds that are not
    to be kept, each with why it stays; with nothing where it is removed.
    """
    spared = time.time() - _DAY if keep is None else float("inf")
    keep = keep or settings.count("LLTM_JIT_KEEP") or 1
    seen: dict[str, int] = {}
    kept = {}
    records = cache.records()  # once: each is some kilobytes of JSON, and there may be hundreds
    uses = [(last_use(record.directory), record) for record in records]
    for used, record in sorted(uses, key=lambda use: use[0], reverse=True):
        seen[record.flags_key] = seen.get(record.flags_key, 0) + 1
        unwanted = seen[record.flags_key] > keep and used < spared
        if (unwanted or used < time.time() - _UNUSED) and used == last_use(record.directory):
            kept[record.key] = remove(record.key)
    remove_rest = (
        functools.partial(_remove_failed, records),
        functools.partial(_remove_debris, {record.key for record in records}),
        functools.partial(_remove_inline, {record.fingerprint["name"] for record in records}),
        prune_headers,
    )
    for remove_some in remove_rest:
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


def _record_of(directory: Path) -> Record | None:
    """None where its builder was killed, or this version cannot read its record."""
    try:
        return cache.read_record(directory)
    except cache.DamagedBuild:
        return None


def _remove_if_useless(key: str) -> None:
    if _record_of(cache.builds_directory() / key) is None:
        remove(key)


def _remove_failed(records: list[Record]) -> None:
    """Keep a failed build's objects for a day, or until another one with the same flags ends."""
    ended: dict[str, float] = {}
    for build in (*records, *cache.records(failed=True)):
        ended[build.flags_key] = max(build.created, ended.get(build.flags_key, 0.0))
    for directory in cache.failed_directory().glob("*"):
        if not re.fullmatch(_KEY, directory.name):
            continue
        record = _record_of(directory)
        oldest = time.time() - _DAY
        if not record or record.created < max(oldest, ended.get(record.flags_key, oldest)):
            publish.remove_whole(directory)


def _remove_debris(readable: set[str]) -> None:
    directory = cache.builds_directory()
    for leftover in directory.glob("tmp-*"):
        lock.if_free(leftover.name.split("-")[1], publish.remove_leftovers)
    for build in directory.glob("*"):
        if build.name not in readable and re.fullmatch(_KEY, build.name):
            lock.if_free(build.name, _remove_if_useless)  # it may only be newer than the list
    for partial in (*directory.glob("*.partial"), *directory.glob("*/*.partial")):
        if time.time() - partial.stat().st_mtime > _DAY:
            partial.unlink(missing_ok=True)
    logs = sorted(cache.failed_directory().glob("*.*"), key=os.path.getmtime, reverse=True)
    for log in logs[2 * _FAILED_LOGS_KEPT :]:  # a log and its message each
        log.unlink(missing_ok=True)


def _remove_inline(names: set[str]) -> None:
    """Remove sources that were given as strings, where no build of them is left after a day."""
    for folder in (cache.builds_directory() / publish.INLINE).glob("*"):
        age = time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
        if folder.name not in names and age > _DAY:
            with lock.try_lock(publish.lock_of_inline(folder.name)) as mine:
                if mine is not None:
                    shutil.rmtree(folder)


def headers() -> Path:
    """The directory of all precompiled headers."""
    return cache.builds_directory() / "pch"


def header_sizes() -> dict[str, int]:
    """The bytes of each header by its key, those used last first."""
    return {
        header.name: sum(path.stat().st_size for path in header.rglob("*") if path.is_file())
        for header in _headers_used_last_first()
    }


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
