"""Builds of several extensions at the same time, in threads that the caller waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from ..machine.toolchain import Toolchain, detect
from ..request.spec import BuildSpec
from ..store import cache
from ..user import cancel
from ..user.progress import Reporter
from . import engine
from .build_result import Build, BuildInfo
from .extension import Extension

T = TypeVar("T")

_POLL = 0.1  # seconds until a caller notices that it is not wanted any more


def load_all(specs: Sequence[BuildSpec], toolchain: Toolchain) -> list[Build]:
    """Load several extensions; those that are not built yet are built at the same time."""
    return at_once(
        partial(engine.load, spec, toolchain, reporter=Reporter(label=spec.name)) for spec in specs
    )


def build_all(
    extensions: Iterable[Extension], *, force: bool = False, verbose: bool | None = None
) -> list[BuildInfo]:
    """Build several extensions at the same time, unless they are cached, without loading them."""

    def build(extension: Extension) -> BuildInfo:
        with cache.at_root(extension.root):
            toolchain = detect(extension.name)
            spec = extension.spec(toolchain)
            reporter = Reporter(verbose, label=extension.name)
            return engine.build(spec, toolchain, force=force, reporter=reporter)

    return at_once(partial(build, each) for each in extensions)


def at_once(calls: Iterable[Callable[[], T]]) -> list[T]:
    """The results of several builds; when one fails, the others are cancelled."""
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    calls, unwanted = list(calls), threading.Event()
    if len(calls) == 1:
        return [calls[0]()]

    def cancellable(call: Callable[[], T]) -> T:
        with cancel.cancelled_by(unwanted):
            return call()

    with ThreadPoolExecutor(len(calls) or 1) as pool:
        futures = [pool.submit(copy_context().run, cancellable, call) for call in calls]
        try:
            while True:
                done, rest = wait(futures, _POLL, FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises its error
                if not rest:
                    return [future.result() for future in futures]
                cancel.check()
        except BaseException:
            unwanted.set()
            raise
