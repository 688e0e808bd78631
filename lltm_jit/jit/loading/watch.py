"""Rebuild on save: a thread watches the sources and reloads when one of them changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ..request.spec import CUDA_SUFFIXES, HEADER_SUFFIXES, OF_GCC
from ..store.files import stamp_of
from ..user.errors import Cancelled, LltmJitError, cancelled_by
from .reload import Reload

_SUFFIXES = (*OF_GCC, *CUDA_SUFFIXES, *HEADER_SUFFIXES)
_POLL = 0.15  # seconds between two looks; a look at about a hundred files takes a millisecond
_SAVING = 0.05  # seconds that an editor may take to write a file


@contextmanager
def watch(
    folders: Callable[[], Iterable[str]],
    reload: Callable[[], Reload],
    then: Callable[[Reload], None] | None = None,
) -> Iterator[None]:
    """Reload in a thread whenever a source in one of the folders is saved.

    The folders are watched without their subfolders; ``folders`` is called again after each reload,
    which may add some. The files are polled, because no system reports changes on network file
    systems. ``then`` is called with the result of each reload that changed something. A build error
    is printed, and the old build stays in use; an error in ``then`` is printed like that of any
    thread. A save during a rebuild cancels the rebuild and starts another. The end of the ``with``
    block cancels a rebuild, too, and ends the watch.
    """
    stop = threading.Event()

    def run(wanted: set[str], seen: dict[str, list[int]]) -> None:
        rebuild, stale = None, threading.Event()
        while not stop.wait(_POLL):
            if rebuild is not None and not rebuild.is_alive():
                rebuild = None
                with suppress(LltmJitError):  # the reload has reported unreadable sources
                    wanted = {*folders()}  # a new folder causes a reload, for earlier saves
            if _sources(wanted) != seen:
                stop.wait(_SAVING)
                seen = _sources(wanted)
                _cancel(rebuild, stale)
                # In a thread of its own: an error in the callback ends that thread, not the watch.
                stale = threading.Event()
                rebuild = threading.Thread(target=_reload_and_tell, args=(reload, then, stale))
                rebuild.start()
        _cancel(rebuild, stale)

    wanted = {*folders()}
    begun = (wanted, _sources(wanted))
    thread = threading.Thread(target=run, args=begun, name="lltm_jit watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _sources(folders: Iterable[str]) -> dict[str, list[int]]:
    """The sources in folders with their stamps, and the subfolders."""
    found = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:  # it is gone, or another user's
            for entry in entries:
                if entry.is_dir():
                    found[entry.path] = list[int]()
                elif entry.name.endswith(_SUFFIXES):
                    found[entry.path] = stamp_of(entry.path)
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
    """Print a line like those of builds, even if builds are quiet."""
    print(f"lltm_jit: {text}", file=sys.stderr, flush=True)
