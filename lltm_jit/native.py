"""The compiled kernels of this package: built or found at import, current until a reload.

Callers write ``native.extension.lltm_cell(...)`` at each call and keep no reference, so that a
reload reaches all of them.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from lltm_jit.jit import Build, BuildInfo, BuildSpec, Toolchain, detect, engine

extension: ModuleType
_current: Build | None = None


def kernels_directory() -> Path:
    """The C++ and CUDA sources: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def package_spec(toolchain: Toolchain) -> BuildSpec:
    """What this package's own extension is built from."""
    return BuildSpec.from_directory("_C", kernels_directory(), toolchain)


def load() -> Build:
    """Load the extension, building it first where needed, and put its kernels behind the ops.

    Does nothing but return the current build when one is loaded.

    Raises:
        BuildError: the sources do not compile; the text is the first error.
        ToolchainError, CacheError: there is no compiler, or no place for the build.
    """
    if _current is None:
        toolchain = detect()
        use(engine.load(package_spec(toolchain), toolchain))
    assert _current is not None
    return _current


def use(build: Build) -> None:
    """Make a loaded build the current one."""
    global extension, _current
    if _current is not None:
        _current.module.release_ops()
    build.module.register_ops()
    extension, _current = build.module, build


def build_info() -> BuildInfo:
    """How the current build came about: versions, key, reason, seconds, architectures."""
    return load().info
