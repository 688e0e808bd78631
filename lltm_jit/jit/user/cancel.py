"""How a thread learns that its build is cancelled, or takes too long.

Ctrl-C reaches only the main thread; a build in another thread checks here while it waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import BuildTimeout

_unwanted: ContextVar[tuple[threading.Event, ...]] = ContextVar("unwanted", default=())
_limit: ContextVar[tuple[float, float] | None] = ContextVar("limit", default=None)


class Cancelled(Exception):
    """The build was cancelled, and left nothing behind."""


@contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """Cancel the builds of this thread once the event is set, inside a ``with`` block."""
    token = _unwanted.set((*_unwanted.get(), event))
    try:
        yield
    finally:
        _unwanted.reset(token)


@contextmanager
def ended_after(seconds: float | None) -> Iterator[None]:
    """End the builds of this thread after some seconds, inside a ``with`` block."""
    token = _limit.set((seconds, time.monotonic() + seconds) if seconds is not None else None)
    try:
        yield
    finally:
        _limit.reset(token)


def check(doing: str = "") -> None:
    """Called before a build, and wherever it waits, with what it does there.

    Raises:
        Cancelled: the build was cancelled.
        BuildTimeout: it takes longer than it was given.
    """
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[1]:
        told = f", while {doing}" if doing else ""
        raise BuildTimeout(f"error: the build was ended after {limit[0]:g} s{told}")
    if any(event.is_set() for event in _unwanted.get()):
        raise Cancelled
