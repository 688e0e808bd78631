"""Functions for the package as a whole: reload, watch, build_info."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload

from lltm_jit import native
from lltm_jit._version import __version__
from lltm_jit.jit import BuildInfo, Toolchain, detect
from lltm_jit.jit.loading import engine
from lltm_jit.jit.loading import reload as jit_reload
from lltm_jit.jit.loading import watch as jit_watch
from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.loading.reload import Reload, Shown
from lltm_jit.jit.request.request import differences
from lltm_jit.jit.request.spec import folders_below
from lltm_jit.jit.user import settings
from lltm_jit.jit.user.errors import LltmJitError, own_frames_hidden

M = TypeVar("M", bound=Shown)


class PackageInfo(NamedTuple):
    """What is installed, and how the loaded families of kernels were built.

    It prints as a short table. ``toolchain`` describes the machine now, not the machine of the
    builds. ``settings`` has the settings that differ from their defaults.
    """

    lltm_jit_version: str
    python_version: str
    toolchain: Toolchain
    families: dict[str, BuildInfo]
    settings: dict[str, str]

    def facts(self) -> list[tuple[str, str]]:
        """What is installed, in words, with misspelt settings."""
        tools = self.toolchain
        cuda = f"nvcc {tools.nvcc_version} of {tools.cuda_home} for {' '.join(tools.architectures)}"
        given = (f"{name}={value}" for name, value in self.settings.items())
        return [
            ("lltm_jit", self.lltm_jit_version),
            ("Python", self.python_version),
            ("torch", f"{tools.torch_version}, CUDA {tools.torch_cuda or 'none'}"),
            ("compiler", tools.cxx_version or "not found"),
            ("CUDA", f"no: {tools.cuda_missing}" if tools.cuda_missing else cuda),
            *(("setting", words) for words in (*given, *settings.unknown())),
        ]

    def __str__(self) -> str:
        builds = [
            (name, "cached" if made.cached else "new", f"{made.seconds:.1f} s", made.reason)
            for name, made in self.families.items()
        ]
        columns = ("family", "build", "made in", "reason")
        return f"{in_columns(self.facts())}\n\n{in_columns([columns, *builds])}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # as `print` shows it, in IPython too


def info_with(families: dict[str, BuildInfo]) -> PackageInfo:
    """What is installed, with these builds."""
    return PackageInfo(__version__, platform.python_version(), detect(), families, settings.given())


@overload
def reload(module: None = None) -> Reload: ...
@overload
def reload(module: M) -> M: ...
@own_frames_hidden
def reload(module: M | None = None) -> Reload | M:
    """Compile what was edited, and use it from now on in this process.

    If no source changed, this returns at once.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`, or a kernel
            from :func:`lltm_jit.kernel`. By default this package's own kernels are reloaded, for
            all callers: modules, ``torch.ops`` and compiled graphs.

    Returns:
        For a module, the same module, which now has the new functions, as after
        ``importlib.reload``. Functions and objects that you took from the module before stay as
        they were. For a kernel, the same kernel, which launches the new code. For this package, a
        :class:`Reload`: the builds, what changed, and the seconds it took.

    Raises:
        BuildError, ToolchainError, CacheError: if a new build failed; the old one stays in use.
        LltmJitError: if the module was not loaded by this package.

    Example:
        >>> done = lltm_jit.reload()
        >>> "rnn" in [build.info.name for build in done.builds]
        True
    """
    if module is not None:
        jit_reload.reload_module(module)
        return module
    began = time.perf_counter()
    before = native.builds()
    builds = tuple(engine.load_all([native.spec(family) for family in native.wanted()]))
    changed: dict[str, None] = {}
    for build in builds:
        old = before.get(build.info.name)
        if old is not build:
            native.use(build)
            changed |= dict.fromkeys(differences(old.content, build.content) if old else ["loaded"])
    for again in [*native.when_reloaded]:
        try:
            again()
        except LltmJitError:
            gc.collect()  # a class that nobody has may still be there, but not its header
            if again in native.when_reloaded:
                raise
    return Reload(builds, tuple(changed), time.perf_counter() - began)


@own_frames_hidden
def watch(
    module: Shown | None = None, then: Callable[[Reload], None] | None = None
) -> AbstractContextManager[None]:
    """Reload whenever a source is saved, for the duration of a ``with`` block.

    A build error is printed, and the old build stays in use. A save during a build cancels that
    build and starts another.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`, or a kernel
            from :func:`lltm_jit.kernel`; by default this package's own kernels.
        then: called in the watching thread after each reload that changed something.

    Raises:
        LltmJitError: if the module was not loaded by this package.

    Example:
        Train while you edit a kernel::

            with lltm_jit.watch(module):
                train()
    """
    if module is not None:
        folders = partial(engine.folders, jit_reload.given(module).spec)
        return jit_watch.watch(folders, lambda: jit_reload.reload_module(module), then)
    return jit_watch.watch(lambda: folders_below(native.kernels_directory()), reload, then)


@overload
def build_info(module: None = None) -> PackageInfo: ...
@overload
def build_info(module: Shown) -> BuildInfo: ...
@own_frames_hidden
def build_info(module: Shown | None = None) -> PackageInfo | BuildInfo:
    """Describe a build: where it is, why it was made, how long it took, and its target.

    The result prints as a short table, also in a notebook.

    Args:
        module: a module from :func:`lltm_jit.load` or :func:`lltm_jit.load_inline`, or a kernel
            from :func:`lltm_jit.kernel`; by default this package. Then the result has the installed
            versions and all loaded families; the call waits for the families that an import loads.

    Returns:
        A :class:`BuildInfo` for a module, a :class:`PackageInfo` for this package.

    Raises:
        BuildError, ToolchainError, CacheError: if the build of one of the families failed.
        LltmJitError: if the module was not loaded by this package.

    Example:
        >>> "rnn" in lltm_jit.build_info().families
        True
    """
    if module is not None:
        return jit_reload.given(module).info
    for family in native.AT_IMPORT:
        native.load(family)
    return info_with({name: build.info for name, build in native.builds().items()})
