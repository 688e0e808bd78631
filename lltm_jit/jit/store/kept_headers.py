"""The precompiled headers that are kept, and which of them are removed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from . import cache, lock, publish

RECORD = "header.json"
_KEPT = 2
_UNUSED = 30 * 24 * 3600  # seconds after which a header goes that no build has used


def place() -> Path:
    """The directory of all precompiled headers."""
    return cache.builds_directory() / "pch"


def sizes() -> dict[str, int]:
    """The bytes of each header by its key, those used last first."""
    return {
        header.name: sum(path.stat().st_size for path in header.rglob("*") if path.is_file())
        for header in _used_last_first()
    }


def _used_last_first() -> list[Path]:
    found = [path.parent for path in place().glob(f"*/{RECORD}")]
    return sorted(found, key=lambda path: cache.last_use(path, RECORD), reverse=True)


def prune(keep: int = _KEPT) -> list[str]:
    """Remove all headers except those used last, and what killed makers left; returns their keys.

    A compiler that reads one keeps it open, and one that comes too late does without it.
    """
    found, oldest = _used_last_first(), time.time() - _UNUSED
    old = [path for path in found[:keep] if cache.last_use(path, RECORD) < oldest]
    gone = old + found[keep:]
    for path in gone:
        publish.remove_whole(path)
    for left in place().glob("tmp-*"):
        with lock.try_lock(f"pch-{left.name.split('-')[1]}") as mine:
            if mine is not None:
                shutil.rmtree(left, ignore_errors=True)
    return [path.name for path in gone]
