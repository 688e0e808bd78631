"""Which builds of a request there are, and when each was last used."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from . import cache
from .cache import RECORD


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


def mark_used(directory: Path) -> None:
    """Note that a build was used now."""
    with suppress(OSError):
        os.utime(directory / RECORD)
