"""Reload: an edited source is built, and its kernels are used in the same process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from ..request.request import differences
from ..request.spec import Spec
from ..store import cache
from ..user.errors import LltmJitError, ended_after
from . import background, engine
from .build import Build, swap_ops, thread_lock


class Reload(NamedTuple):
    """What a reload did.

    ``builds`` has one build for a module, one per family for this package, and none for the command
    ``watch``, which loads nothing. ``changed`` describes what changed, and is empty if nothing did.
    ``seconds`` is how long the reload took.
    """

    builds: tuple[Build, ...]
    changed: tuple[str, ...]
    seconds: float

    @property
    def build(self) -> Build:
        """The first build, for a module the only one."""
        return self.builds[0]


class Shows(Protocol):
    """An object that shows a build and is not a module: a kernel."""

    def use(self, build: Build) -> None:
        """Show this build from now on."""


Shown: TypeAlias = "ModuleType | Shows"
_TURN = "modules"  # the lock of the threads that give or refill modules
_given: WeakKeyDictionary[Shown, Build] = WeakKeyDictionary()  # what each module shows


def give(build: Build) -> ModuleType:
    """The module that shows a build: the last one given for it, or a new one.

    From now on it can be reloaded, and also imported by its name, unless another module has that
    name.
    """
    with thread_lock(_TURN):
        modules = ((m, shown) for m, shown in given_modules() if isinstance(m, ModuleType))
        showing = [module for module, shown in modules if shown is build]
        if showing:
            module = showing[-1]
        elif build.module not in _given:
            module = build.module
        else:  # a reload has filled that one with another build
            module = ModuleType(build.spec.name)
            vars(module).update(build.names)
        if build.spec.python_module and _is_ours(build.spec.name):
            sys.modules[build.spec.name] = module
        _given[module] = build
        return module


def load_and_give(spec: Spec, verbose: bool, timeout: float | None = None) -> ModuleType | str:
    """What ``load`` returns for a spec: its module, or the path of a library or program."""
    background.stand_back(spec)
    with ended_after(timeout):
        build = engine.load(spec, verbose=verbose or None)
    library = build.info.library
    place = cache.put(library, Path(spec.root)) if spec.root else library
    module = give(build)
    if spec.python_module:
        return module
    # The library's own path: the loader would take a link for the library that it first led to.
    return str(place if spec.standalone else library)


def show(kernel: Shows, build: Build) -> None:
    """Note which build a kernel shows, so that it can be reloaded."""
    _given[kernel] = build


def given_modules() -> Iterator[tuple[Shown, Build]]:
    """The user's modules and kernels, each with the build that it shows."""
    return iter(list(_given.items()))


def given(module: Shown) -> Build:
    """The build that a module from ``load`` or ``load_inline``, or a kernel, shows."""
    # For a library that is not a module, load has returned a path.
    found = _given.get(module) if hasattr(module, "use") or isinstance(module, ModuleType) else None
    if found is None:
        name = getattr(module, "__name__", repr(module))
        raise LltmJitError(f"{name} was not loaded by lltm_jit.load as a module")
    return found


def reload_module(module: Shown) -> Reload:
    """Build what changed, and let the module or kernel show it, as ``importlib.reload`` does.

    The old library stays loaded, for objects that came from it.
    """
    began = time.perf_counter()
    build = engine.load(given(module).spec)
    with thread_lock(_TURN):
        old = given(module)
        if build is old:
            pass
        elif not isinstance(module, ModuleType):
            module.use(build)
        else:
            swap_ops(module, SimpleNamespace(**build.names))
            vars(module).update(build.names)
            for name in old.names.keys() - build.names.keys():
                vars(module).pop(name, None)
        _given[module] = build
    if build.spec.root:
        cache.put(build.info.library, Path(build.spec.root))
    changed = tuple(differences(old.content, build.content))
    return Reload((build,), changed, time.perf_counter() - began)


def _is_ours(name: str) -> bool:
    """Whether only an earlier build, or a namespace package, has this name."""
    if name in sys.modules:
        return any(module is sys.modules[name] for module, _ in given_modules())
    found = find_spec(name)
    return found is None or found.origin is None
