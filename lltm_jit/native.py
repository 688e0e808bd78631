"""The compiled kernels of this package: one extension per family, replaced by a reload.

Callers write ``native.rnn.lltm_cell(...)`` at each call and keep no reference, so that a reload
reaches all of them. The first use of a family waits for its build, for which the import started a
child.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import overload

from lltm_jit._package_info import PackageInfo, installed
from lltm_jit.jit import (
    Build,
    BuildInfo,
    BuildSpec,
    Toolchain,
    detect,
    engine,
    knobs,
    prebuilt,
)
from lltm_jit.jit import reload as jit_reload
from lltm_jit.jit import watch as jit_watch
from lltm_jit.jit.extension import Extension
from lltm_jit.jit.fingerprint import differences
from lltm_jit.jit.parallel import load_all
from lltm_jit.jit.reload import Reload
from lltm_jit.jit.spec import folders_below
from lltm_jit.ops._library import OPERATORS
from lltm_jit.ops._placeholders import Placeholders

AT_IMPORT = ("basic", "rnn")  # the families that importing the package loads
LEAST_ARCHITECTURE = (8, 0)  # of the GPUs that the families' CUDA kernels are written for

# Called with a family's module when it is first used, and on a reload of the package.
when_used: dict[str, list[Callable[[ModuleType], None]]] = {}
when_reloaded: list[Callable[[], object]] = []

_current: dict[str, Build] = {}
_asked: dict[str, float] = {}  # when a child was asked to build a family
_placeholders: dict[str, Placeholders] = {}
_swap = threading.RLock()


def kernels_directory() -> Path:
    """The C++ and CUDA sources: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def include_path() -> Path:
    """Return the include path of the headers ``core/...`` and ``rnn/...``, for your own projects.

    Pass it to :func:`lltm_jit.load` as one of ``extra_include_paths``.

    Example:
        >>> (include_path() / "core" / "math" / "activations.h").is_file()
        True
    """
    return kernels_directory()


def families() -> list[str]:
    """The folders of kernels next to core/, each an extension of its own."""
    folders = kernels_directory().iterdir()
    return sorted(folder.name for folder in folders if (folder / "bindings.cpp").is_file())


def spec(family: str, toolchain: Toolchain) -> BuildSpec:
    """What a family's extension is built from: its files, and what they include of core/."""
    root = kernels_directory()
    spec = BuildSpec.from_directory(family, root / family, toolchain, root)
    return replace(spec, least_architecture=LEAST_ARCHITECTURE)


def extension(family: str) -> Extension:
    """A family's extension, whose library may come from the package's wheel."""
    place = Path(__file__).parent / prebuilt.FOLDER
    return Extension(family, partial(spec, family), packaged=place)


def start(*names: str) -> None:
    """Load the families that are built; a child builds the others, and their first use waits.

    With ``LLTM_JIT_BACKGROUND=0`` or ``LLTM_JIT_VERBOSE=1`` they are built here.

    Raises:
        BuildError: as :func:`load`, where they are built here.
        ToolchainError, CacheError: there is no compiler, or no usable directory for the build.
    """
    missing = []
    for family in names:
        toolchain = detect(family)
        wanted = spec(family, toolchain)
        build = extension(family).find(wanted, toolchain)
        if build is None and not _may_wait():
            build = engine.load(wanted, toolchain)
        if build is not None:
            use(build)
        else:
            missing.append((wanted, toolchain))
    if not missing:
        return
    from lltm_jit.jit import builder, child  # a cached import does without them: 20 ms

    for wanted, toolchain in missing:
        family = wanted.name
        builder.check(wanted, toolchain)
        _placeholders[family] = Placeholders(OPERATORS.get(family, ()), partial(load, family))
        _asked[family] = time.time()
    child.start(missing)


def load(family: str) -> Build:
    """The current build of a family, which is loaded first if necessary.

    Raises:
        BuildError: the sources do not compile, or their operators do not match the schemas; the
            text is the first error.
        ToolchainError, CacheError: there is no compiler, or no usable directory for the build.
    """
    if family not in _current:
        build = extension(family).load(asked=_asked.get(family))
        with _swap:
            if family not in _current:
                use(build)
    return _current[family]


def use(build: Build) -> None:
    """Make a loaded build the current one of its family."""
    family = build.info.name
    with _swap:
        old = _current.get(family)
        if old is build:
            return
        jit_reload.swap_ops(old.module if old else None, build.module)
        globals()[family] = build.module
        _current[family] = build
        for listener in [*when_used.get(family, ())]:
            listener(build.module)
        if placeholders := _placeholders.pop(family, None):
            placeholders.remove()


def _may_wait() -> bool:
    """Whether a child may build, for the first use to wait for."""
    return knobs.flag("LLTM_JIT_BACKGROUND") and not (
        knobs.flag("LLTM_JIT_VERBOSE") or knobs.flag("LLTM_JIT_DISABLE_JIT")
    )


def _forget_threads() -> None:
    """A thread that held the lock does not exist in a forked child, and would never release it."""
    global _swap
    _swap = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def __getattr__(name: str) -> ModuleType:
    """A family's module, at its first use; afterwards it is an attribute."""
    if name in families():
        return load(name).module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@overload
def reload(module: None = None) -> Reload: ...
@overload
def reload(module: ModuleType) -> ModuleType: ...
def reload(module: ModuleType | None = None) -> Reload | ModuleType:
    """Compile what was edited, and use it from now on in this process.

    If no source changed, this returns at once.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`. By default this
            package's own kernels are reloaded, for all callers: modules, ``torch.ops`` and compiled
            graphs.

    Returns:
        For a module, the same module, which now has the new functions, as after
        ``importlib.reload``. Functions and objects that you took from it before stay as they were.
        For this package, a :class:`Reload`: the builds, what changed, and the seconds it took.

    Raises:
        BuildError, ToolchainError, CacheError: if a new build failed; the old one stays in use.
        LltmJitError: if the module was not loaded by this package.

    Example:
        >>> done = lltm_jit.reload()
        >>> [build.info.name for build in done.builds][:2]
        ['basic', 'rnn']
    """
    if module is not None:
        jit_reload.reload_module(module)
        return module
    began = time.perf_counter()
    toolchain = detect()
    wanted = sorted({*AT_IMPORT, *_current, *_asked})
    builds = tuple(load_all([spec(family, toolchain) for family in wanted], toolchain))
    changed: dict[str, None] = {}
    for build in builds:
        old = _current.get(build.info.name)
        if old is not build:
            use(build)
            changed |= dict.fromkeys(differences(old.content, build.content) if old else ["loaded"])
    for again in [*when_reloaded]:
        again()
    return Reload(builds, tuple(changed), time.perf_counter() - began)


def watch(
    module: ModuleType | None = None, then: Callable[[Reload], None] | None = None
) -> AbstractContextManager[None]:
    """Reload whenever a source is saved, for the duration of a ``with`` block.

    An error of the build is printed, and the old build stays in use.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`; by default this
            package's own kernels.
        then: called in the watching thread after each reload that changed something.

    Raises:
        ToolchainError: if watchfiles is not installed.
        LltmJitError: if the module was not loaded by this package.

    Example:
        Train while you edit a kernel::

            with lltm_jit.watch(module):
                train()
    """
    if module is not None:
        return jit_watch.watch_module(module, then)
    return jit_watch.watch(lambda: folders_below(kernels_directory()), reload, then)


@overload
def build_info(module: None = None) -> PackageInfo: ...
@overload
def build_info(module: ModuleType) -> BuildInfo: ...
def build_info(module: ModuleType | None = None) -> PackageInfo | BuildInfo:
    """Tell where a build is, why it was made, how long it took, and what it was made for.

    The result prints as a short table, also in a notebook.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`; by default this
            package. Then the result covers what is installed and all families that are loaded,
            after waiting for those that an import loads.

    Returns:
        A :class:`BuildInfo` for a module, a :class:`PackageInfo` for this package.

    Raises:
        BuildError, ToolchainError, CacheError: if the build of one of the families failed.
        LltmJitError: if the module was not loaded by this package.

    Example:
        >>> sorted(lltm_jit.build_info().families)[:2]
        ['basic', 'rnn']
    """
    if module is not None:
        return jit_reload.given(module).build.info
    for family in AT_IMPORT:
        load(family)
    return PackageInfo(
        **installed(detect()), families={name: build.info for name, build in _current.items()}
    )
