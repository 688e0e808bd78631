"""The compiled kernels of this package: built or found at import, current until a reload.

Callers write ``native.extension.lltm_cell(...)`` at each call and keep no reference, so that a
reload reaches all of them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from lltm_jit.jit import Build, BuildInfo, BuildSpec, Toolchain, detect, engine, prebuilt
from lltm_jit.jit import reload as jit_reload
from lltm_jit.jit import watch as jit_watch
from lltm_jit.jit.reload import Reload


@dataclass(frozen=True)
class PackageInfo(BuildInfo):
    """How this package's build came about, and what is installed beside it.

    ``toolchain`` is what this machine has now, whatever the build was made with.
    """

    lltm_jit_version: str
    python_version: str
    toolchain: Toolchain


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
        BuildError: the sources do not compile, or their operators do not fit the schemas; the text
            is the first error.
        ToolchainError, CacheError: there is no compiler, or no place for the build.
    """
    if _current is None:
        toolchain = detect()
        spec = package_spec(toolchain)
        use(packaged(spec, toolchain) or engine.load(spec, toolchain))
    assert _current is not None
    return _current


def packaged(spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """The library that was compiled into the wheel, loaded; None where there is none that fits."""
    return prebuilt.load(Path(__file__).parent, spec, toolchain)


def use(build: Build) -> None:
    """Make a loaded build the current one."""
    global extension, _current
    if _current is None:
        jit_reload.register_ops(build.module)
    else:
        jit_reload.swap_ops(_current.module, build.module)
    extension, _current = build.module, build


@overload
def reload(module: None = None) -> Reload: ...
@overload
def reload(module: ModuleType) -> ModuleType: ...
def reload(module: ModuleType | None = None) -> Reload | ModuleType:
    """Compile what was edited, and put it into force in this process.

    Args:
        module: what :func:`lltm_jit.load` or ``load_inline`` gave; by default this package's own
            kernels, which every caller then reaches: modules, ``torch.ops``, compiled graphs.

    Returns:
        For this package, a ``Reload``: the build, what changed, and the seconds; for a module, the
        new module. At once and without a change when the sources are the same.

    Raises:
        BuildError, ToolchainError, CacheError: the new build failed; the old one stays in force.
        LltmJitError: the module was not loaded by this package.
    """
    if module is not None:
        return jit_reload.reload_module(module).build.module
    return jit_reload.reload(load(), package_spec, use)


def watch(
    module: ModuleType | None = None, then: Callable[[Reload], None] | None = None
) -> AbstractContextManager[None]:
    """Reload whenever a source is saved, as long as a ``with`` block lasts.

    Args:
        module: what :func:`lltm_jit.load` or ``load_inline`` gave; by default this package's own
            kernels, which every caller then reaches.
        then: called after each reload that changed something, in the watching thread. Of a module
            it gets the new one as ``.build.module``.

    Raises:
        ToolchainError: watchfiles is not installed.
        LltmJitError: the module was not loaded by this package.
    """
    if module is not None:
        return jit_watch.watch_module(module, then)
    return jit_watch.watch([kernels_directory()], reload, then)


def build_info() -> PackageInfo:
    """How the current build came about, and what is installed; as ``python -m lltm_jit info``."""
    return PackageInfo(**vars(load().info), **installed(detect()))


def installed(toolchain: Toolchain) -> dict[str, Any]:
    """The entries of a ``PackageInfo`` that are known before there is a build."""
    from lltm_jit import __version__  # not there yet when this module is imported

    return {
        "lltm_jit_version": __version__,
        "python_version": platform.python_version(),
        "toolchain": toolchain,
    }
