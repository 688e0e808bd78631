"""From an edited source to its new kernels in the same process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from . import cache, engine, publish
from .engine import Build
from .errors import BuildError, LltmJitError
from .fingerprint import differences
from .spec import BuildSpec
from .toolchain import Toolchain, detect

Respec = Callable[[Toolchain], BuildSpec]  # looks at the sources anew


class Reload(NamedTuple):
    """What a reload did: ``builds`` has one for a module, and one for each family of the package.

    ``changed`` is empty when there was nothing to do.
    """

    builds: tuple[Build, ...]
    changed: tuple[str, ...]
    seconds: float

    @property
    def build(self) -> Build:
        """The only build, or the first."""
        return self.builds[0]


class _Origin(NamedTuple):
    build: Build
    respec: Respec
    root: str | os.PathLike[str] | None


_origins: dict[str | None, _Origin] = {}  # by the module's file


def reload(current: Build, respec: Respec, swap: Callable[[Build], None]) -> Reload:
    """Build what changed since ``current`` and put the new build into force.

    Args:
        current: the build in force.
        respec: makes the spec from the sources as they are now.
        swap: puts a loaded build into force. It is called only when there is another build.

    Raises:
        BuildError, ToolchainError, CacheError: the new build failed; the current one stays.
    """
    began = time.perf_counter()
    toolchain = detect()
    build = engine.load(respec(toolchain), toolchain)
    if build is not current:
        swap(build)
    changed = tuple(differences(current.content, build.content))
    return Reload((build,), changed, time.perf_counter() - began)


def register_ops(module: ModuleType) -> None:
    """Register a module's operators; one without ``register_ops()`` has none.

    Raises:
        BuildError: torch refuses them; the text is torch's.
    """
    register = getattr(module, "register_ops", None)
    if register is None:
        return
    try:
        register()
    except RuntimeError as error:
        raise BuildError(
            f"error: the operators of the built library cannot be registered: {error}\n"
            "   = make each schema and the C++ function that implements it fit together\n"
            f"   = {module.__file__}"
        ) from error


def swap_ops(old: ModuleType | None, new: ModuleType) -> None:
    """Register the operators of a module, and then let go of those of the one before.

    In this order no call in another thread comes to an operator without a kernel. Modules without
    ``register_ops()`` and ``release_ops()`` have none.

    Raises:
        BuildError: torch refuses the new operators; the old ones stay.
    """
    register_ops(new)
    release = getattr(old, "release_ops", None)
    if release is not None:
        release()


def remember(build: Build, respec: Respec, root: str | os.PathLike[str] | None) -> None:
    """Note where a module of the user's came from, for :func:`reload_module`.

    From now on it can also be imported by its name, unless that is another module's.
    """
    module = build.module
    _origins[module.__file__] = _Origin(build, respec, root)
    if _is_ours(module.__name__):
        sys.modules[module.__name__] = module


def _is_ours(name: str) -> bool:
    """Whether nothing has this name but an earlier build, or a folder, which is a package too."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) in _origins
    found = find_spec(name)
    return found is None or found.origin is None


def reload_module(module: ModuleType) -> Reload:
    """Reload a module that ``load`` or ``load_inline`` gave; the new one is ``.build.module``.

    Raises:
        LltmJitError: the module is of another origin.
        BuildError, ToolchainError, CacheError: the new build failed; the module stays usable.
    """
    origin = _origin(module)
    with cache.at_root(origin.root):
        done = reload(
            origin.build, origin.respec, lambda build: swap_ops(origin.build.module, build.module)
        )
    if origin.root:
        publish.link(done.build.info.library, Path(origin.root))
    remember(done.build, origin.respec, origin.root)
    return done


def source_directories(module: ModuleType) -> list[str]:
    """Where the files lie that a module was built from.

    Raises:
        LltmJitError: the module is of another origin.
    """
    origin = _origin(module)
    spec = origin.respec(detect())
    return sorted({str(path.parent) for path in (*spec.headers, *origin.build.files)})


def _origin(module: ModuleType) -> _Origin:
    origin = _origins.get(getattr(module, "__file__", None))  # load gives a path for no module
    if origin is None:
        name = getattr(module, "__name__", repr(module))
        raise LltmJitError(f"{name} was not loaded by lltm_jit.load as a module, so not reloaded")
    return origin
