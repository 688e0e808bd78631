"""Exceptions of the build engine; all of them are :class:`LltmJitError`.

Errors that can stop an ``import`` are also ``ImportError``, so that ``try: import ... except
ImportError`` treats a failed build like a missing package. They are also ``RuntimeError``, which is
what torch raises for a failed build.

Ctrl-C reaches only the main thread; a build in another thread checks here, while it waits, whether
it is cancelled or takes too long.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_unwanted: ContextVar[tuple[threading.Event, ...]] = ContextVar("unwanted", default=())
_limit: ContextVar[tuple[float, float] | None] = ContextVar("limit", default=None)


class LltmJitError(RuntimeError):
    """The base class of all errors of the build engine."""

    _shown = False

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the text alone, and then the whole traceback for ``%tb``."""
        if self._shown:
            return "".join(traceback.format_exception(self)).splitlines()
        self._shown = True
        return str(self).splitlines()


class BuildError(LltmJitError, ImportError):
    """The sources do not compile, link or load; the text is the first error, with its cure.

    Programs find its parts in attributes, which are None where they are unknown.

    Attributes:
        file: the file of the first error, as the compiler names it, or the name of a string of
            ``load_inline``, such as ``cuda_sources[0]``.
        line: the line in it, from 1.
        column: the character in that line, from 1.
        message: the compiler's or the engine's words for the first error, without place and cure.
        log: the path of the whole output.
    """

    def __init__(
        self,
        text: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        message: str | None = None,
        log: str | None = None,
    ) -> None:
        super().__init__(text)
        self.file, self.line, self.column = file, line, column
        self.message = message or text.partition("\n")[0].removeprefix("error: ")
        self.log = log


class BuildTimeout(BuildError):
    """A build took longer than its time limit. The objects compiled by then are kept."""


class ToolchainError(LltmJitError, ImportError):
    """A tool that the build needs is missing on this machine, or a setting is invalid."""


class CacheError(LltmJitError, ImportError):
    """The directory for builds cannot be used: it is unwritable, full, or open to other users."""


class SourceMissing(LltmJitError, FileNotFoundError):
    """A source is missing; the text says which one."""


class SourceEdited(Exception):
    """A file changed during the build, so the build matches neither version; build again."""


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
    """End the builds of this thread after some seconds, inside a ``with`` block.

    Raises:
        ValueError: ``seconds`` is negative, or not a number.
    """
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"expected timeout to be a number of seconds from 0 on, but got {seconds}")
    token = _limit.set((seconds, time.monotonic() + seconds) if seconds is not None else None)
    try:
        yield
    finally:
        _limit.reset(token)


def check_wanted(doing: str = "") -> None:
    """Raise if the build must end. It is called before a build, and wherever a build waits.

    Raises:
        Cancelled: the build was cancelled.
        BuildTimeout: it takes longer than its time limit.
    """
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[1]:
        told = f", while {doing}" if doing else ""
        raise BuildTimeout(f"error: the build was ended after {limit[0]:g} s{told}")
    if any(event.is_set() for event in _unwanted.get()):
        raise Cancelled


def own_frames_hidden(function: Callable[P, R]) -> Callable[P, R]:
    """Have tracebacks of this package's errors end at the caller of a public function."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except LltmJitError as error:
            if own := error.__traceback__:
                own.tb_next = None  # Python 3.10 keeps this function's frame, the first
            error.__traceback__ = error.__cause__ = None
            raise  # adds no frame, unlike `raise error`

    return call
