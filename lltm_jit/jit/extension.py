"""An extension as it was asked for, whose spec is made from the sources as they are now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import cache, engine, prebuilt
from .engine import Build, BuildInfo
from .spec import BuildSpec
from .toolchain import Toolchain, detect


@dataclass(frozen=True)
class Extension:
    """What is loaded, reloaded, watched and built, and what the commands are about.

    Args:
        name: of the extension.
        spec: looks at the sources anew.
        root: of its builds, in place of the usual one.
        packaged: where a library may lie that came in a wheel; by default beside the sources.
    """

    name: str
    spec: Callable[[Toolchain], BuildSpec]
    root: Path | None = None
    packaged: Path | None = None

    def load(self, verbose: bool | None = None) -> Build:
        """The library of a wheel where it fits, else the one in the cache, built if needed.

        Raises:
            BuildError, ToolchainError, CacheError: as :func:`engine.load`.
        """
        with cache.at_root(self.root):
            toolchain = detect(self.name)
            spec = self.spec(toolchain)
            packaged = prebuilt.load(self._place(spec), spec, toolchain)
            return packaged or engine.load(spec, toolchain, verbose=verbose)

    def find(self, spec: BuildSpec, toolchain: Toolchain) -> Build | None:
        """What :meth:`load` loads without a compiler; None where it needs one."""
        return prebuilt.load(self._place(spec), spec, toolchain) or engine.find(spec, toolchain)

    def packaged_info(self, toolchain: Toolchain) -> BuildInfo | None:
        """The library of a wheel that :meth:`load` would load. Loads nothing."""
        spec = self.spec(toolchain)
        return prebuilt.inspect(self._place(spec), spec, toolchain)

    def info(self, toolchain: Toolchain) -> BuildInfo | None:
        """What :meth:`load` would find; None where it would compile. Loads nothing."""
        return self.packaged_info(toolchain) or engine.inspect(self.spec(toolchain), toolchain)

    def directories(self) -> list[str]:
        """Where the files lie that it is built from."""
        with cache.at_root(self.root):
            toolchain = detect(self.name)
            files = engine.known_files(self.spec(toolchain), toolchain)
        return sorted({str(path.parent) for path in files if path.parent.is_dir()})

    def _place(self, spec: BuildSpec) -> Path:
        return self.packaged or spec.base / prebuilt.FOLDER
