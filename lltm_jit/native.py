"""The compiled kernels of this package, an extension for each family, current until a reload.

Callers write ``native.rnn.lltm_cell(...)`` at each call and keep no reference, so that a reload
reaches all of them. The first use of a family loads it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from lltm_jit.jit import Build, BuildInfo, BuildSpec, Toolchain, detect, engine
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


AT_IMPORT = ("basic", "rnn")  # the families that importing the package loads
_current: dict[str, Build] = {}


def kernels_directory() -> Path:
    """The C++ and CUDA sources: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def families() -> list[str]:
    """The folders of kernels beside core/, each an extension of its own."""
    folders = kernels_directory().iterdir()
    return sorted(
        path.parent.name for path in map(lambda f: f / "bindings.cpp", folders) if path.is_file()
    )


def spec(family: str, toolchain: Toolchain) -> BuildSpec:
    """What a family's extension is built from: its files, and what they include of core/."""
    root = kernels_directory()
    return BuildSpec.from_directory(family, root / family, toolchain, root)


def load(family: str) -> Build:
    """Load a family, building it first where needed, and put its kernels behind the ops.

    Does nothing but return the current build when one is loaded.

    Raises:
        BuildError: the sources do not compile, or their operators do not fit the schemas; the text
            is the first error.
        ToolchainError, CacheError: there is no compiler, or no place for the build.
    """
    if family not in _current:
        toolchain = detect()
        use(engine.load(spec(family, toolchain), toolchain))
    return _current[family]


def use(build: Build) -> None:
    """Make a loaded build the current one of its family."""
    family = build.info.name
    old = _current.get(family)
    if old is None:
        jit_reload.register_ops(build.module)
    else:
        jit_reload.swap_ops(old.module, build.module)
    globals()[family] = build.module
    _current[family] = build


def __getattr__(name: str) -> ModuleType:
    if name in families():
        return load(name).module
    raise AttributeError(name)


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
