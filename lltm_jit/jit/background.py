"""Background builds: an import starts one, and the first use waits for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Generic, TypeVar

from . import cache, cancel, engine
from .build import Build, BuildInfo
from .cancel import Cancelled, cancelled_by
from .extension import Extension
from .progress import Reporter
from .spec import BuildSpec
from .toolchain import Toolchain, detect

T = TypeVar("T")

_POLL = 0.1  # seconds until a waiting thread notices that it is not wanted any more
_running: set[BackgroundBuild[Any]] = set()


class BackgroundBuild(Generic[T]):
    """An extension that is built in a thread.

    If the process ends early, it finishes the build first. If it is interrupted, it cancels the
    build, and what was compiled is kept.

    Args:
        name: the name of the extension.
        make: builds it, and returns the result.
        shown: whether to show progress from the start, or only once somebody waits.
        verbose: print every step; by default as LLTM_JIT_VERBOSE says.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Reporter], T],
        shown: bool = False,
        verbose: bool | None = None,
    ) -> None:
        _import_all()
        self._name = name
        self._make = make
        self._reporter = Reporter(verbose, label=name, shown=shown)
        self._unwanted = threading.Event()
        self._ending = False  # the process ends, and nobody will ask for the result
        self._result: T | None = None
        self._error: Exception | None = None
        self._ended = threading.Event()  # Thread.join() forgets a thread when it is interrupted
        _running.add(self)
        threading.Thread(target=self._run, name=f"lltm_jit {name}", daemon=True).start()

    def result(self) -> T:
        """Wait for the build, and show its progress.

        Raises:
            BuildError, ToolchainError, CacheError: it failed; every call raises it.
            Cancelled: it was cancelled, or nobody wants to wait any more.
            KeyboardInterrupt: the wait was interrupted, and the build was cancelled.
        """
        self._reporter.show()
        try:
            while not self._ended.wait(_POLL):
                cancel.check()
        except (KeyboardInterrupt, Cancelled):
            self.give_up()
            self._ended.wait()
            raise
        if self._error is not None:
            raise type(self._error)(*self._error.args) from None
        assert self._result is not None
        return self._result

    def is_over(self) -> bool:
        """Whether it has ended, after a short wait. Raises what :meth:`result` raises."""
        over = self._ended.wait(_POLL)
        if over and self._error is not None:
            self.result()
        return over

    def give_up(self) -> None:
        """Cancel the build, unless it is over. Does not wait for its compilers to end."""
        self._unwanted.set()

    def finish(self) -> None:
        """Wait until the thread has ended, however the build turned out."""
        if not self._ended.is_set() and not self._unwanted.is_set():
            self._ending = not self.awaited
            self._reporter.say(f"finishing the build of {self._name} before the process ends")
            self._reporter.show()
        self._ended.wait()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it, or has waited."""
        return self._reporter.shown

    def _run(self) -> None:
        try:
            with cancelled_by(self._unwanted):
                self._result = self._make(self._reporter)
        except Cancelled as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the build raises it
            self._error = error
            if self._ending:
                self._reporter.say(f"the build of {self._name} failed: {error}")
            elif not self.awaited:
                self._reporter.say(
                    f"the build of {self._name} failed; its first use raises this:\n{error}"
                )
        finally:
            _running.discard(self)
            self._ended.set()


def _import_all() -> None:
    """Import what a build needs before its thread does.

    A child that is forked while a thread imports a module can never import it, and some modules
    cannot be imported once the interpreter has started to shut down.
    """
    for name in (
        "concurrent.futures.thread",
        "encodings.ascii",
        "tqdm.std",
        "lltm_jit.jit.builder",
    ):
        import_module(name)
    from filelock import FileLock, SoftFileLock, Timeout  # noqa: F401 - filelock 4 is lazy

    with suppress(ImportError):  # there may be another ninja, on PATH
        import_module("ninja")


def load_in_background(
    spec: BuildSpec, toolchain: Toolchain, shown: bool = False
) -> BackgroundBuild[Build]:
    """Start to build an extension, and then load it."""
    make = partial(engine.load, spec, toolchain)
    return BackgroundBuild(spec.name, lambda reporter: make(reporter=reporter), shown)


def load_all(specs: Sequence[BuildSpec], toolchain: Toolchain) -> list[Build]:
    """Load several extensions; those that are not built yet are built at the same time.

    Raises:
        BuildError, ToolchainError, CacheError: one failed, and the others were cancelled.
    """
    found = [engine.find(spec, toolchain) for spec in specs]
    wanted = (spec for spec, build in zip(specs, found, strict=True) if build is None)
    made = iter(_at_once(load_in_background(spec, toolchain, shown=True) for spec in wanted))
    return [build or next(made) for build in found]


def build_all(
    extensions: Iterable[Extension], *, force: bool = False, verbose: bool | None = None
) -> list[BuildInfo]:
    """Build several extensions at the same time, unless they are cached, without loading them.

    Args:
        force, verbose: as for :func:`engine.build`.

    Raises:
        BuildError, ToolchainError, CacheError: one failed, and the others were cancelled.
    """

    def build(extension: Extension, reporter: Reporter) -> BuildInfo:
        with cache.at_root(extension.root):
            toolchain = detect(extension.name)
            spec = extension.spec(toolchain)
            return engine.build(spec, toolchain, force=force, reporter=reporter)

    return _at_once(
        BackgroundBuild(each.name, partial(build, each), shown=True, verbose=verbose)
        for each in extensions
    )


def _at_once(builds: Iterable[BackgroundBuild[T]]) -> list[T]:
    """The results of several builds; when one fails, the others are cancelled."""
    begun: list[BackgroundBuild[T]] = []
    try:
        begun.extend(builds)
        while [build for build in begun if not build.is_over()]:
            cancel.check()
        return [build.result() for build in begun]
    except BaseException:
        for build in begun:
            build.give_up()
            build.finish()
        raise


def stand_back() -> None:
    """Cancel the builds that nobody waits for, because the program has another one to make."""
    for build in list(_running):
        if not build.awaited:
            build.give_up()


def _finish_all() -> None:
    """Let the builds finish before the process ends, so that even an import alone leaves a build.

    Called before the interpreter starts to shut down: after that, a build could start no thread.
    """
    builds = list(_running)
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    try:
        for build in builds:
            if interrupted:
                build.give_up()
            build.finish()
    except KeyboardInterrupt:
        for build in builds:
            build.give_up()
        for build in builds:
            build.finish()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


# As concurrent.futures does it; atexit would call too late from Python 3.12 on.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)  # a child has none of these threads
