"""How a thread is told that nobody wants its build any more.

Ctrl-C reaches the main thread alone; a build in another one looks here while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_unwanted: ContextVar[threading.Event | None] = ContextVar("unwanted", default=None)


class Cancelled(Exception):
    """The build was given up, and nothing of it is left."""


@contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """Give up the builds of this thread once the event is set, for as long as this lasts."""
    token = _unwanted.set(event)
    try:
        yield
    finally:
        _unwanted.reset(token)


def check() -> None:
    """Called before a build, and wherever it waits.

    Raises:
        Cancelled: the build is not wanted any more.
    """
    event = _unwanted.get()
    if event is not None and event.is_set():
        raise Cancelled
