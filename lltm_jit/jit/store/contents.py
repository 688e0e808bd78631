"""What files hold, each read once: a stamp stands for the content within a process.

A load looks at each source three times: for what it includes, for the key, and for the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

_SECOND = 1_000_000_000
_TICK_NS = 50_000_000  # two changes this far apart have different times
_COARSE_TICK_NS = 2 * _SECOND  # the same where a file system counts whole seconds
_INCLUDE = re.compile(r'#[ \t]*include[ \t]*["<]([^">\n]+)[">]')


class Content:
    """What matters of a file: the digest of its bytes, and the names that it includes."""

    __slots__ = ("digest", "includes", "stamp")

    def __init__(self, digest: str, includes: tuple[str, ...], stamp: list[int]) -> None:
        self.digest = digest
        self.includes = includes
        self.stamp = stamp


_known: dict[str, Content] = {}
_looked: ContextVar[set[str] | None] = ContextVar("looked", default=None)


@contextmanager
def at_one_time() -> Iterator[None]:
    """Look at each text once inside a ``with`` block: later edits are for the next block."""
    token = _looked.set(set())
    try:
        yield
    finally:
        _looked.reset(token)


def of(path: str) -> Content:
    """The content of a text as it is now.

    Raises:
        OSError: it cannot be read.
    """
    known, looked = _known.get(path), _looked.get()
    if known is not None and ((looked and path in looked) or known.stamp == stamp_of(path)):
        return known
    file = open_at_once(path, os.O_RDONLY)
    try:
        stamp = _stamp(os.fstat(file))
        settled = is_settled(stamp)  # before it is read, because that takes time, too
        text = b"".join(iter(partial(os.read, file, stamp[0] + 1), b""))
    finally:
        os.close(file)
    found = Content(hashlib.sha256(text).hexdigest(), _includes(os.fsdecode(text)), stamp)
    if settled:
        _known[path] = found
        if looked is not None:
            looked.add(path)
    return found


def _includes(text: str) -> tuple[str, ...]:
    return tuple(
        match[1]
        for match in _INCLUDE.finditer(text)
        if not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
    )


def digest(path: Path) -> str:
    """The digest of a file's content."""
    hasher = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=open_at_once) as file:
        while block := file.read(1 << 16):  # larger ones are fresh pages from the system each time
            hasher.update(block)
    return hasher.hexdigest()


def digest_of(value: Any) -> str:
    """A short digest of what JSON can hold."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def open_at_once(path: str | os.PathLike[str], flags: int) -> int:
    """Open like ``open``, but treat a pipe in place of a file as empty, and do not wait for it."""
    return os.open(path, flags | os.O_NONBLOCK)


def stamp_of(path: str) -> list[int]:
    """What changes in a file's metadata whenever its content does; empty if there is no file."""
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):  # a name with a null byte is no path at all
        return []


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def is_settled(stamp: list[int]) -> bool:
    """Whether another change of the file would give it another stamp."""
    tick = _TICK_NS if stamp and stamp[2] % _SECOND else _COARSE_TICK_NS
    return not stamp or stamp[2] <= time.time_ns() - tick
