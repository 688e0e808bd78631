"""How a thread learns that its build is cancelled.

Ctrl-C reaches only the main thread; a build in another thread checks here while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_unwanted: ContextVar[threading.Event | None] = ContextVar("unwanted", default=None)


class Cancelled(Exception):
    """The build was cancelled, and left nothing behind."""


@contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """Cancel the builds of this thread once the event is set, inside a ``with`` block."""
    token = _unwanted.set(event)
    try:
        yield
    finally:
        _unwanted.reset(token)


def check() -> None:
    """Called before a build, and wherever it waits.

    Raises:
        Cancelled: the build was cancelled.
    """
    event = _unwanted.get()
    if event is not None and event.is_set():
        raise Cancelled
