"""A build: its library, which is imported into the process, and what it was made of.

A library is loaded under a name of its own, so that several builds of one extension can be in a
process.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..request.request import Request
from ..request.spec import Spec
from ..store import cache, files, private
from ..store.cache import DamagedBuild, Record
from ..store.files import Stamps
from ..user.errors import BuildError, check_wanted

if TYPE_CHECKING:
    from .operators import Library

_FOREIGN = "__pybind11_module_local"  # pybind11 finds another module's class by it
_TICK = 0.1  # seconds between checks whether a waiting thread is cancelled
_LOADS_IN = "_LLTM_JIT_LOADS_IN"  # lltm_jit_registrations.h reads it
_in_process: dict[str, threading.RLock] = {}

# A thread that held a lock does not exist in a forked child, and would never release it.
os.register_at_fork(after_in_child=_in_process.clear)


@contextmanager
def thread_lock(key: str) -> Iterator[None]:
    """Hold the lock that the threads of this process share for a key."""
    lock = _in_process.setdefault(key, threading.RLock())
    if not lock.acquire(blocking=False):
        while not lock.acquire(timeout=_TICK):
            check_wanted("waiting for another thread")
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

    Each build is found under a name of its own, because pybind11 returns the same module again for
    a known name; the objects contain only the last part of the name. The module is executed under
    its plain name, so that pickle finds the classes of the library there.
    """
    spec, file = request.spec, record.file
    cache.check_private(file)
    path = str(file)
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
            vars(module)["code"] = file.read_bytes()
        elif not spec.standalone:
            torch.ops.load_library(path)
    except (ImportError, OSError) as error:
        from ..compile import diagnostics

        with suppress(OSError):  # it was not loaded
            if operators := operators_of(spec, file):
                operators.register(False)  # only the module has failed
        # The error of torch.ops.load_library names the path alone; its cause has the reason.
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise BuildError(diagnostics.explain_import(str(reason), path, request)) from error
    return module


def _initialize(spec: Spec, path: str) -> None:
    """Let a library register its blocks with torch, and keep the error if that fails.

    Without the variable, a block that fails would end the process.
    """
    if _may_have_blocks(spec):
        with thread_lock(_LOADS_IN):
            os.environ[_LOADS_IN] = str(os.getpid())  # another process has another number
            try:
                ctypes.CDLL(path)
            finally:
                del os.environ[_LOADS_IN]


def _may_have_blocks(spec: Spec) -> bool:
    return not (spec.ours or spec.standalone or spec.device_code)


def operators_of(spec: Spec, library: Path) -> "Library | None":
    """The operators that a loaded library registers with torch, if it has blocks for that."""
    if not _may_have_blocks(spec):
        return None
    loaded = ctypes.CDLL(str(library))  # the same library again
    if not hasattr(loaded, "lltm_jit_register"):
        return None
    from .operators import Library  # most programs do not need it

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


class BuildInfo(NamedTuple):
    """How a build was made. It prints as a short table.

    ``reason``, ``seconds``, ``compiled`` and ``reused`` describe how the build was made, whenever
    that was; ``cached`` says whether this process found it in the cache. ``created`` is in seconds
    since the epoch.
    """

    name: str
    key: str
    directory: Path
    library: Path
    reason: str
    seconds: float
    cached: bool
    compiled: int
    reused: int
    torch_version: str
    cuda_version: str | None
    compiler: str
    nvcc: str | None
    architectures: tuple[str, ...]
    sources: tuple[Path, ...]
    created: float

    def __str__(self) -> str:
        state = "found in the cache" if self.cached else "made by this process"
        cuda = f", nvcc {self.nvcc}" if self.nvcc and self.architectures else ""
        rows = [
            ("extension", self.name),
            ("target", " ".join(self.architectures) or "CPU"),
            ("build", f"{state}; it took {self.seconds:.1f} s"),
            ("reason", self.reason),
            ("files", f"{self.compiled} compiled, {self.reused} reused"),
            ("compiler", self.compiler + cuda),
            ("torch", self.torch_version),
            ("directory", short_path(self.directory)),
        ]
        return in_columns(rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # as `print` shows it, in IPython too

    @property
    def log(self) -> Path:
        """The path of the compilers' complete output."""
        return self.directory / cache.LOG


class Build:
    """A build, and the module loaded from it, which is empty if the library is not a module.

    ``names`` is what the module held after its import, and ``info`` sums up the build;
    ``info.library`` may be outside the cache, in a package. ``operators`` are the operators that
    the library has registered with torch.
    """

    def __init__(
        self, module: ModuleType, record: Record, request: Request, info: BuildInfo
    ) -> None:
        self.module, self.record, self.info = module, record, info
        self.request = request
        self.names = dict(vars(module))
        self.operators = operators_of(request.spec, info.library)

    def keep_classes(self) -> None:
        """Let no other module take objects of this one's classes: a newer build's class of the same
        name may have other members.
        """
        for each in self.names.values():
            if isinstance(each, type):
                for name in [name for name in vars(each) if name.startswith(_FOREIGN)]:
                    delattr(each, name)

    @property
    def spec(self) -> Spec:
        """What was asked for."""
        return self.request.spec

    @property
    def files(self) -> list[Path]:
        """The user's files that the build was made of."""
        return own_files(self.request, self.record)

    @property
    def content(self) -> dict[str, Any]:
        """Everything that decides the library's content, with all files that it was made of."""
        read = self.record.inputs.files | self.record.content["files"]
        return {**self.record.content, "files": read}


def own_files(request: Request, record: Record) -> list[Path]:
    """The user's files that a build of a request was made of."""
    read = (files.place(request.base, label) for label in record.inputs.files)
    paths = [*map(request.path_of, request.sources), *filter(request.is_own, read)]
    return [Path(path) for path in dict.fromkeys(paths)]


def info_of(record: Record, request: Request, *, cached: bool) -> BuildInfo:
    """A summary of a build."""
    made = record.content
    return BuildInfo(
        name=record.name,
        key=record.key,
        directory=record.directory,
        library=record.file,
        reason=record.reason,
        seconds=record.seconds,
        cached=cached,
        compiled=record.compiled,
        reused=record.reused,
        torch_version=made["torch"],
        cuda_version=made["cuda"] if made["with_cuda"] else None,
        compiler=made["compiler"],
        nvcc=made["nvcc"],
        architectures=tuple(made["architectures"]),
        sources=tuple(Path(request.path_of(source)) for source in request.sources),
        created=record.created,
    )


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words, each column as wide as its longest word."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (zip(row, widths, strict=True) for row in rows)
    return "\n".join("  ".join(f"{word:{width}}" for word, width in row).rstrip() for row in padded)


def short_path(path: Path) -> str:
    """A path, with ``~`` for the home directory."""
    home = os.path.expanduser("~")  # "~" itself where there is no home
    return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)
