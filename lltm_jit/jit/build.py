"""The result of a build: where it is and how it was made, and what was loaded from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from . import cache, manifest
from .cache import Record
from .fingerprint import Fingerprint, whole
from .manifest import Manifest
from .spec import BuildSpec


@dataclass(frozen=True)
class BuildInfo:
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

    @property
    def log(self) -> Path:
        """The path of the compilers' complete output."""
        return self.directory / cache.LOG


@dataclass(frozen=True, eq=False)
class Build:
    """A loaded build. ``module`` is empty for what is not a Python module.

    ``spec`` and ``request`` are what was asked for, and ``manifest`` is what the build was made of.
    """

    module: ModuleType
    info: BuildInfo
    spec: BuildSpec = field(repr=False)
    request: Fingerprint = field(repr=False)
    manifest: Manifest = field(repr=False)

    @property
    def files(self) -> list[Path]:
        """The user's files that the build was made of."""
        return [*self.spec.sources, *manifest.own_files(self.manifest, self.spec.base)]

    @property
    def content(self) -> Fingerprint:
        """The request with all files that the build was made of."""
        return whole(self.request, self.manifest)


def info_of(record: Record, spec: BuildSpec, *, cached: bool) -> BuildInfo:
    """What a record tells of the build of a spec."""
    made = record.fingerprint
    return BuildInfo(
        name=spec.name,
        key=record.key,
        directory=record.directory,
        library=record.directory / record.library,
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
        sources=spec.sources,
        created=record.created,
    )
