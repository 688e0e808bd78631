"""The import of a checked library into the process.

What a library registers while it is loaded, a process can register only once: a second
``TORCH_LIBRARY`` block for the same namespace makes torch abort the process inside the loader,
where nothing can be caught. So such a library is refused before it is loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

from ..request.request import Request
from ..store import cache, private
from ..store.cache import DamagedBuild, Record
from ..store.files import Stamps
from ..user.errors import BuildError

_registered: set[str] = set()
_in_process: dict[str, threading.RLock] = {}

# A thread that held a lock does not exist in a forked child, and would never release it.
os.register_at_fork(after_in_child=_in_process.clear)


def thread_lock(key: str) -> threading.RLock:
    """The lock that the threads of this process share for a key."""
    return _in_process.setdefault(key, threading.RLock())


def _refuse_again(request: Request, blocks: Iterable[str]) -> None:
    if again := sorted(_registered.intersection(blocks)):
        raise BuildError(
            f"error: {request.spec.name} registers operators when it is loaded, in "
            f"{', '.join(again)}, and this process has already registered them; torch would abort "
            "it\n   = restart Python to load the new build, or define the operators from Python "
            "with torch.library.Library(...).define, and register the C++ implementations in "
            "functions register_ops() and release_ops() of the module, which a reload calls"
        )


def check_library(record: Record, library: Path, stamps: Stamps) -> None:
    """Check the content of a build's library.

    Raises:
        DamagedBuild: the library is missing or is not what was built, or others may write to it.
    """
    if problem := private.why_not_private(library):
        raise DamagedBuild(problem)
    if stamps.digests([str(library)]) != {str(library): record.digest}:
        is_there = "is not the file that was built" if library.exists() else "is missing"
        raise DamagedBuild(f"{record.library} {is_there}")


def import_library(request: Request, record: Record, library: Path) -> ModuleType:
    """Import a checked library.

    Each build is imported under a name of its own, because pybind11 returns the module that it
    already has under a known name; the last part of the name is compiled into every object. What
    the library defines then belongs to a module of the plain name, where pickle finds it.
    """
    cache.check_private(library)
    spec, registers = request.spec, record.registers
    _refuse_again(request, registers)
    path = str(library)
    module = ModuleType(f"lltm_jit._builds.{record.key}.{spec.name}")
    module.__file__ = path
    try:
        if spec.python_module:
            function = f"PyInit_{spec.name}" if spec.name.isascii() else "PyInitU_"
            if registers and function.encode() not in library.read_bytes():
                # As Python says once it is loaded. Then its operators are there, for good.
                told = f"dynamic module does not define module export function ({function})"
                raise ImportError(told)
            import_spec = spec_from_file_location(module.__name__, path)
            assert import_spec is not None
            assert import_spec.loader is not None
            module = module_from_spec(import_spec)
            module.__name__ = spec.name
            import_spec.loader.exec_module(module)
        elif not (spec.standalone or spec.device_code):
            torch.ops.load_library(path)
    except (ImportError, OSError) as error:
        from ..compile import diagnostics

        with suppress(OSError):  # no /proc
            if path in Path("/proc/self/maps").read_text("utf-8", "surrogateescape"):
                _registered.update(registers)  # what failed is the module alone
        # torch.ops.load_library names the path alone, and has the reason below it.
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise BuildError(diagnostics.explain_import(str(reason), path)) from error
    _registered.update(registers)
    return module


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
