"""From an edited source to the new kernels in the same process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..machine.toolchain import detect
from ..request.differences import differences
from ..store import cache, publish
from ..user.errors import LltmJitError
from . import engine, importing
from .build_result import Build
from .extension import Extension


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


class Given(NamedTuple):
    """The build that one of the user's modules shows, and its extension."""

    build: Build
    extension: Extension


_TURN = "modules"  # of the threads that give them, or fill them anew
_given: WeakKeyDictionary[ModuleType, Given] = WeakKeyDictionary()


def give(build: Build, extension: Extension) -> ModuleType:
    """The module that shows a build: of those given before the last one, or a new one.

    From now on it can be reloaded, and also imported by its name, unless another module has that
    name.
    """
    with importing.thread_lock(_TURN):
        showing = [module for module, given in given_modules() if given.build is build]
        module = showing[-1] if showing else _fresh(build, extension.name)
        if build.content["python_module"] and _is_ours(extension.name):
            sys.modules[extension.name] = module
        _given[module] = Given(build, extension)
        return module


def load_and_give(
    extension: Extension, verbose: bool, standalone: bool = False
) -> ModuleType | str:
    """What ``load`` returns for an extension: its module, or the path of what is none."""
    build = extension.load(verbose or None)
    library = build.info.library
    place = publish.put(library, extension.root) if extension.root else library
    module = give(build, extension)
    if build.content["python_module"]:
        return module
    # A library goes by its own path: the loader would take the link's for the one it first led to.
    return str(place if standalone else library)


def _fresh(build: Build, name: str) -> ModuleType:
    """The build's own module, or another one if a reload has filled that one with another build."""
    if build.module not in _given:
        return build.module
    module = ModuleType(name)
    vars(module).update(build.names)
    return module


def given_modules() -> Iterator[tuple[ModuleType, Given]]:
    """The user's modules, and what each shows."""
    return iter(list(_given.items()))


def given(module: ModuleType) -> Given:
    """What a module from ``load`` or ``load_inline`` shows."""
    # load gives a path, and no module, of what is none.
    found = _given.get(module) if isinstance(module, ModuleType) else None
    if found is None:
        name = getattr(module, "__name__", repr(module))
        raise LltmJitError(f"{name} was not loaded by lltm_jit.load as a module")
    return found


def reload_module(module: ModuleType) -> Reload:
    """Build what changed, and let the module show it, as ``importlib.reload`` does.

    The old library stays loaded, for objects that came from it.
    """
    began = time.perf_counter()
    extension = given(module).extension
    with cache.at_root(extension.root):
        toolchain = detect(extension.name)
        build = engine.load(extension.spec(toolchain), toolchain)
    with importing.thread_lock(_TURN):
        old = given(module).build
        if build is not old:
            importing.swap_ops(module, SimpleNamespace(**build.names))
            vars(module).update(build.names)
            for name in old.names.keys() - build.names.keys():
                vars(module).pop(name, None)
            _given[module] = Given(build, extension)
    if extension.root:
        publish.put(build.info.library, extension.root)
    changed = tuple(differences(old.content, build.content))
    return Reload((build,), changed, time.perf_counter() - began)


def _is_ours(name: str) -> bool:
    """Whether only an earlier build has this name, or a folder, which is a namespace package."""
    if name in sys.modules:
        return any(module is sys.modules[name] for module, _ in given_modules())
    found = find_spec(name)
    return found is None or found.origin is None
