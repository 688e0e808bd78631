"""The result of a build: where it is and how it was made, and what was loaded from it."""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..request.fingerprint import Fingerprint, whole
from ..request.spec import BuildSpec
from ..store import cache, manifest
from ..store.cache import Record
from ..store.manifest import Manifest


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


_AS_RECORDED = ("key", "directory", "reason", "seconds", "compiled", "reused", "created")


class Build:
    """A loaded build. ``module`` is empty if the library is not a Python module.

    ``names`` is what the module held when it was imported. ``spec`` and ``request`` are what was
    asked for, and ``manifest`` is what the build was made of.
    """

    def __init__(
        self,
        module: ModuleType,
        info: BuildInfo,
        spec: BuildSpec,
        request: Fingerprint,
        manifest: Manifest,
    ) -> None:
        self.module, self.info, self.spec = module, info, spec
        self.request, self.manifest = request, manifest
        self.names = dict(vars(module))

    @property
    def files(self) -> list[Path]:
        """The user's files that the build was made of."""
        return [*self.spec.sources, *manifest.own_files(self.manifest, self.spec.base)]

    @property
    def content(self) -> Fingerprint:
        """The request with all files that the build was made of."""
        return whole(self.request, self.manifest)


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words, each column as wide as its longest word."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (zip(row, widths, strict=True) for row in rows)
    return "\n".join("  ".join(f"{word:{width}}" for word, width in row).rstrip() for row in padded)


def short_path(path: Path) -> str:
    """A path, with ``~`` for the home directory."""
    home = os.path.expanduser("~")  # "~" itself where there is no home
    return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)


def info_of(record: Record, spec: BuildSpec, *, cached: bool) -> BuildInfo:
    """What a record tells of the build of a spec."""
    made = record.fingerprint
    return BuildInfo(
        **{name: getattr(record, name) for name in _AS_RECORDED},
        name=spec.name,
        library=record.directory / record.library,
        cached=cached,
        torch_version=made["torch"],
        cuda_version=made["cuda"] if made["with_cuda"] else None,
        compiler=made["compiler"],
        nvcc=made["nvcc"],
        architectures=tuple(made["architectures"]),
        sources=spec.sources,
    )
