"""How a thread learns that its build is cancelled.

Ctrl-C reaches only the main thread; a build in another thread checks here while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_unwanted: ContextVar[tuple[threading.Event, ...]] = ContextVar("unwanted", default=())


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


def check() -> None:
    """Called before a build, and wherever it waits.

    Raises:
        Cancelled: the build was cancelled.
    """
    if any(event.is_set() for event in _unwanted.get()):
        raise Cancelled
