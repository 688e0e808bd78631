"""The compiled kernels of this package, an extension for each family, current until a reload.

Callers write ``native.rnn.lltm_cell(...)`` at each call and keep no reference, so that a reload
reaches all of them. The first use of a family loads it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from lltm_jit.jit import Build, BuildInfo, BuildSpec, Toolchain, detect, engine, prebuilt
from lltm_jit.jit import reload as jit_reload
from lltm_jit.jit import watch as jit_watch
from lltm_jit.jit.reload import Reload


@dataclass(frozen=True)
class PackageInfo:
    """What is installed, and how the build of each loaded family came about.

    ``toolchain`` is what this machine has now, whatever the builds were made with.
    """

    lltm_jit_version: str
    python_version: str
    toolchain: Toolchain
    families: dict[str, BuildInfo]


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
        family_spec = spec(family, toolchain)
        use(packaged(family_spec, toolchain) or engine.load(family_spec, toolchain))
    return _current[family]


def packaged(spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """The library that was compiled into the wheel, loaded; None where there is none that fits."""
    return prebuilt.load(Path(__file__).parent, spec, toolchain)


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
    began = time.perf_counter()
    missing = [family for family in AT_IMPORT if family not in _current]
    for family in missing:
        load(family)
    done = [
        jit_reload.reload(build, partial(spec, family), use)
        for family, build in list(_current.items())
    ]
    changes = [
        *(change for each in done for change in each.changed),
        *(["loaded"] if missing else []),
    ]
    return Reload(
        tuple(each.build for each in done),
        tuple(dict.fromkeys(changes)),
        time.perf_counter() - began,
    )


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
    """What is installed, and how the builds came about; as ``python -m lltm_jit info``."""
    for family in AT_IMPORT:
        load(family)
    families = {family: build.info for family, build in _current.items()}
    return PackageInfo(**installed(detect()), families=families)


def installed(toolchain: Toolchain) -> dict[str, Any]:
    """The entries of a ``PackageInfo`` that are known before there is a build."""
    from lltm_jit import __version__  # not there yet when this module is imported

    return {
        "lltm_jit_version": __version__,
        "python_version": platform.python_version(),
        "toolchain": toolchain,
    }
