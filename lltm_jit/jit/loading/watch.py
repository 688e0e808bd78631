"""Rebuild on save: a thread watches the sources and reloads when one of them changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ..request.spec import CUDA_SUFFIXES, HEADER_SUFFIXES, OF_GCC
from ..user.cancel import Cancelled, cancelled_by
from ..user.errors import LltmJitError, ToolchainError
from .reload import Reload

_SUFFIXES = (*OF_GCC, *CUDA_SUFFIXES, *HEADER_SUFFIXES)
_POLL_MS = 200  # how soon a watch that ends is noticed


@contextmanager
def watch(
    folders: Callable[[], Iterable[str]],
    reload: Callable[[], Reload],
    then: Callable[[Reload], None] | None = None,
) -> Iterator[None]:
    """Reload in a thread whenever a source in one of the folders is saved.

    The folders are watched without those inside them, and asked for again after each change, which
    may have brought others. ``then`` is called with the result of each reload that changed
    something. A build error is printed, and the old build stays in use; an error in ``then`` is
    printed as that of a thread. A save during a rebuild cancels that and begins anew, and so does
    the end of the ``with`` block, which ends the watch.
    """
    try:
        import watchfiles
    except ImportError:
        raise ToolchainError(
            "watching needs watchfiles; run `python -m pip install watchfiles`"
        ) from None
    stop, ready = threading.Event(), threading.Event()

    def watch_them(wanted: set[str], again: bool) -> set[str]:
        """Watch until others are wanted, or until the end; returns what is wanted then."""
        watched = _there(wanted)
        changes = watchfiles.watch(
            *watched,
            watch_filter=lambda change, path: (
                path.endswith(_SUFFIXES) or (change == change.added and os.path.isdir(path))
            ),
            debounce=50,
            step=10,
            stop_event=stop,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,  # the first one tells that the watch has begun
            raise_interrupt=False,
            recursive=False,
        )
        now, stale, once = wanted, threading.Event(), None
        try:
            for changed in changes:
                ready.set()
                if changed or again:
                    _cancel(once, stale)
                    # In a thread: an error of the callback ends that, and not the watch.
                    stale, again = threading.Event(), False
                    once = threading.Thread(target=_reload_and_tell, args=(reload, then, stale))
                    once.start()
                elif once and not once.is_alive():
                    once = None
                    with suppress(LltmJitError):  # of sources that cannot be read; the reload told
                        now = {*folders()}
                if now != wanted or _there(now) != watched:
                    return now
            return wanted
        finally:
            _cancel(once, stale)

    def run() -> None:
        again = False
        try:
            wanted = {*folders()}
            while not stop.is_set():
                # A reload at the beginning of a watch finds what was saved before it.
                wanted, again = watch_them(wanted, again), True
        except (OSError, RuntimeError) as error:  # such as too many watches for this user
            say(f"stopped watching: {error}")
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="lltm_jit watch", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _there(folders: Iterable[str]) -> dict[str, int]:
    """The folders that can be watched, and what tells each from another of the same name."""
    found = {}
    for path in folders:
        with suppress(OSError):
            if os.access(path, os.R_OK | os.X_OK):
                found[path] = os.stat(path).st_ino
    return found


def _cancel(rebuild: threading.Thread | None, stale: threading.Event) -> None:
    stale.set()
    if rebuild is not None:
        rebuild.join()


def _reload_and_tell(
    reload: Callable[[], Reload], then: Callable[[Reload], None] | None, stale: threading.Event
) -> None:
    try:
        with cancelled_by(stale):
            done = reload()
    except Cancelled:
        return
    except LltmJitError as error:
        say(f"the old build stays in use\n{error}")
        return
    if done.changed and then is not None:
        then(done)


def say(text: str) -> None:
    """Print a line among those of the builds, also where these are quiet."""
    print(f"lltm_jit: {text}", file=sys.stderr, flush=True)
