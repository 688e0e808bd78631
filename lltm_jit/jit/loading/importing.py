"""The import of a checked library into the process.

A library is loaded under a name of its own, so that several builds of one extension can be in a
process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import torch

from ..request.request import Request
from ..request.spec import Spec
from ..store import cache, private
from ..store.cache import DamagedBuild, Record
from ..store.files import Stamps
from ..user.errors import BuildError

if TYPE_CHECKING:
    from .operators import Library

_TICK = 0.1  # seconds between looks at whether a waiting thread is still wanted
_LOADS_IN = "_LLTM_JIT_LOADS_IN"  # as in lltm_jit_registrations.h
_in_process: dict[str, threading.RLock] = {}

# A thread that held a lock does not exist in a forked child, and would never release it.
os.register_at_fork(after_in_child=_in_process.clear)


@contextmanager
def thread_lock(key: str) -> Iterator[None]:
    """Hold the lock that the threads of this process share for a key."""
    lock = _in_process.setdefault(key, threading.RLock())
    if not lock.acquire(blocking=False):
        from ..user import cancel  # which most imports do without

        while not lock.acquire(timeout=_TICK):
            cancel.check("waiting for another thread")
    try:
        yield
    finally:
        lock.release()


def check_library(record: Record, stamps: Stamps) -> None:
    """Check the content of a build's library.

    Raises:
        DamagedBuild: the library is missing or is not what was built, or others may write to it.
    """
    file = record.file
    if problem := private.why_not_private(file):
        raise DamagedBuild(problem)
    if stamps.digests([str(file)]) != {str(file): record.digest}:
        is_there = "is not the file that was built" if file.exists() else "is missing"
        raise DamagedBuild(f"{record.library} {is_there}")


def import_library(request: Request, record: Record) -> ModuleType:
    """Import a checked library.

    Each build is imported under a name of its own, because pybind11 returns the module that it
    already has under a known name; the last part of the name is compiled into every object. What
    the library defines then belongs to a module of the plain name, where pickle finds it.
    """
    cache.check_private(record.file)
    spec, path = request.spec, str(record.file)
    module = ModuleType(f"lltm_jit._builds.{record.key}.{spec.name}")
    module.__file__ = path
    try:
        _initialize(spec, path)
        if spec.python_module:
            import_spec = spec_from_file_location(module.__name__, path)
            assert import_spec is not None
            assert import_spec.loader is not None
            module = module_from_spec(import_spec)
            module.__name__ = spec.name
            import_spec.loader.exec_module(module)
        elif spec.device_code:  # its file may be gone when it is launched
            vars(module)["code"] = record.file.read_bytes()
        elif not spec.standalone:
            torch.ops.load_library(path)
    except (ImportError, OSError) as error:
        from ..compile import diagnostics

        with suppress(OSError):  # it was not loaded
            if operators := operators_of(spec, record.file):
                operators.register(False)  # what failed is the module alone
        # torch.ops.load_library names the path alone, and has the reason below it.
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise BuildError(diagnostics.explain_import(str(reason), path, request)) from error
    return module


def _initialize(spec: Spec, path: str) -> None:
    """Let a library register its blocks with torch, and keep the error where it cannot.

    Where nobody says that he will ask for it, a block ends the process.
    """
    if _may_have_blocks(spec):
        with thread_lock(_LOADS_IN):
            os.environ[_LOADS_IN] = str(os.getpid())  # not that of a process that starts meanwhile
            try:
                ctypes.CDLL(path)
            finally:
                del os.environ[_LOADS_IN]


def _may_have_blocks(spec: Spec) -> bool:
    return not (spec.ours or spec.standalone or spec.device_code)


def operators_of(spec: Spec, library: Path) -> Library | None:
    """What a library that is loaded has registered with torch, if it has blocks for that."""
    if not _may_have_blocks(spec):
        return None
    loaded = ctypes.CDLL(str(library))  # once more the same library
    if not hasattr(loaded, "lltm_jit_register"):
        return None
    from .operators import Library  # which most programs do without

    return Library(spec, loaded)


def swap_ops(old: ModuleType | None, new: ModuleType | SimpleNamespace) -> None:
    """Register the operators of a module, then release those of the previous one.

    In this order no call in another thread finds an operator without a kernel. Modules without
    ``register_ops()`` and ``release_ops()`` have no operators.
    """
    try:
        getattr(new, "register_ops", lambda: None)()
    except RuntimeError as error:
        raise BuildError(
            f"error: the operators of the built library cannot be registered: {error}\n"
            "   = make each schema match the C++ function that implements it\n"
            f"   = {new.__file__}"
        ) from error
    getattr(old, "release_ops", lambda: None)()
