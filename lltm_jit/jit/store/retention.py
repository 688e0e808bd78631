"""Pruning: a cache that is larger than its limit loses its least recently used entries.

A process that has loaded a build keeps its library even if the file is removed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..user import settings
from . import cache, lock

GIGABYTE = 10**9
_SPARED = 3600  # seconds; other processes may be about to load or link recent entries


class Entry(NamedTuple):
    """Something in the cache that is removed as a whole."""

    path: Path
    kind: str  # "build", "work" or "object"
    used: float
    size: int


def entries() -> Iterator[Entry]:
    """All that the cache holds."""
    root = cache.builds_directory()
    found = [("build", path) for path in cache.directories("")]
    for kind, path in found + [("work", path) for path in root.glob("work/*")]:
        with suppress(OSError):  # another process has removed it
            record = path / cache.RECORD  # may not be written yet
            used = (record if record.exists() else path).stat().st_mtime
            yield Entry(path, kind, used, size_of(path))
    for folder in root.glob("objects/*"):
        with suppress(OSError), os.scandir(folder) as files:
            for file in files:  # tens of thousands, so few system calls for each
                with suppress(OSError):
                    status = file.stat()
                    yield Entry(Path(file), "object", status.st_mtime, status.st_blocks * 512)


def limit() -> int:
    """The bytes that the cache may hold."""
    return (settings.count("LLTM_JIT_CACHE_GB") or 1) * GIGABYTE


def prune(most: int | None = None, spare: float = _SPARED) -> list[tuple[Entry, str]]:
    """Remove the least recently used entries until ``most`` bytes stay (default: the limit).

    Entries used in the last ``spare`` seconds stay, and entries being compiled. Returns each entry
    to remove with the reason why it stays, which is empty if it is gone.
    """
    most = limit() if most is None else most
    found = sorted(entries(), key=lambda entry: entry.used)
    size, removed = sum(entry.size for entry in found), []
    for entry in found:
        if size <= most or entry.used > time.time() - spare:
            break
        why = remove(entry)
        size -= 0 if why else entry.size
        removed.append((entry, why))
    return removed


def remove(entry: Entry) -> str:
    """Remove an entry; returns why it is kept, empty if it is gone."""
    name = entry.path.name
    try:
        if entry.kind == "object":
            entry.path.unlink(missing_ok=True)
        elif entry.kind == "build":
            (entry.path / cache.RECORD).unlink(missing_ok=True)  # so that nobody takes a part of it
            shutil.rmtree(entry.path)
        else:
            with lock.try_lock(name) as mine:
                if not mine:
                    return "is in use"
                shutil.rmtree(entry.path)
    except FileNotFoundError:
        return ""  # another process has removed it
    except OSError as error:
        return f"cannot be deleted ({error.strerror})"
    return ""


def size_of(path: Path) -> int:
    """The bytes on disk of all files in a directory, while others may remove some."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total
