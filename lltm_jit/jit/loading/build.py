"""What a build was made of, and the module that was loaded from it."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..request.request import Request
from ..request.spec import Spec
from ..store import cache, files
from ..store.cache import Record
from . import importing

_FOREIGN = "__pybind11_module_local"  # by which pybind11 finds another module's class


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

    ``names`` is what the module held when it was imported, and ``info`` is the build in short.
    ``library`` may lie outside the cache, in a package. ``operators`` are those that the library
    has registered with torch.
    """

    def __init__(
        self, module: ModuleType, record: Record, request: Request, info: BuildInfo
    ) -> None:
        self.module, self.record, self.info = module, record, info
        self.request = request
        self.names = dict(vars(module))
        self.operators = importing.operators_of(request.spec, info.library)

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
        """What decided the content of the library, with all files that it was made of."""
        read = self.record.inputs.files | self.record.content["files"]
        return {**self.record.content, "files": read}


def own_files(request: Request, record: Record) -> list[Path]:
    """The user's files that a build of a request was made of."""
    read = (files.place(request.base, label) for label in record.inputs.files)
    paths = [*map(request.path_of, request.sources), *filter(request.is_own, read)]
    return [Path(path) for path in dict.fromkeys(paths)]


def info_of(record: Record, request: Request, *, cached: bool) -> BuildInfo:
    """A build in short."""
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
