"""Rebuild on save: a thread watches the sources and reloads when one of them changes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

from .cancel import Cancelled, cancelled_by
from .errors import LltmJitError, ToolchainError
from .reload import Reload, given, reload_module
from .spec import CUDA_SUFFIXES, CXX_SUFFIXES, HEADER_SUFFIXES

_SUFFIXES = (*CXX_SUFFIXES, *CUDA_SUFFIXES, *HEADER_SUFFIXES)
_POLL_MS = 200  # how soon a watch that ends is noticed


@contextmanager
def watch(
    directories: Iterable[str | Path],
    reload: Callable[[], Reload],
    then: Callable[[Reload], None] | None = None,
) -> Iterator[None]:
    """Reload in a thread whenever a source below the directories is saved.

    Args:
        directories: what to watch.
        reload: rebuilds, and switches to the new build.
        then: called with the result of each reload that changed something.

    A build error is printed, and the old build stays in use; an error in ``then`` is printed as
    that of a thread. The watch ends with the ``with`` block, which cancels a rebuild that is still
    running.

    Raises:
        ToolchainError: watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError:
        raise ToolchainError(
            "watching needs watchfiles; run `python -m pip install watchfiles`"
        ) from None
    stop, ready = threading.Event(), threading.Event()

    def is_source(change: object, path: str) -> bool:
        return path.endswith(_SUFFIXES)

    def run() -> None:
        changes = watchfiles.watch(
            *directories,
            watch_filter=is_source,
            debounce=50,
            step=10,
            stop_event=stop,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,  # the first one tells that the watch has begun
            raise_interrupt=False,
        )
        for changed in changes:
            ready.set()
            if changed:
                # In a thread of its own: an error of the callback ends that, and not the watch.
                once = threading.Thread(target=_reload_and_tell, args=(reload, then, stop))
                once.start()
                once.join()

    thread = threading.Thread(target=run, name="lltm_jit watch", daemon=True)
    thread.start()
    ready.wait(timeout=10)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def watch_module(
    module: ModuleType, then: Callable[[Reload], None] | None = None
) -> AbstractContextManager[None]:
    """Reload a module of the user's whenever one of its sources is saved; see :func:`watch`.

    Raises:
        LltmJitError: the module is of another origin.
        ToolchainError: watchfiles is not installed.
    """
    directories = given(module).extension.directories()
    return watch(directories, lambda: reload_module(module), then)


def _reload_and_tell(
    reload: Callable[[], Reload], then: Callable[[Reload], None] | None, stop: threading.Event
) -> None:
    try:
        with cancelled_by(stop):
            done = reload()
    except Cancelled:
        return
    except LltmJitError as error:
        print(f"lltm_jit: the old build stays in use\n{error}", file=sys.stderr, flush=True)
        return
    if done.changed and then is not None:
        then(done)
