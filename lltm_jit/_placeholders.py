"""Stand-ins: for a family's kernels until it is loaded, and for classes that are in files.

Those for kernels wait for them and call again. Here is also what is done to a module of torch once
it is imported.

Note [Keys of the placeholders]
A placeholder is registered under every key that a call of an operator may come to first: Autograd
and FuncTorchBatched (vmap), and the devices for inference mode, where there is no Autograd. Not
under CompositeImplicitAutograd, which has all of these: the tracing of torch.compile takes such a
kernel for the operator's decomposition.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

_KEYS = ("Autograd", "FuncTorchBatched", "CPU", "CUDA", "Meta")


class Placeholders:
    """Kernels for some operators that call ``load`` and then the operator once more."""

    def __init__(self, names: Iterable[str], load: Callable[[], object]) -> None:
        self._library = torch.library.Library("lltm_jit", "IMPL")
        self._names = [*names]
        for name in self._names:
            call = _waiting(name, load)
            for key in _KEYS:
                self._library.impl(name, call, key)

    def remove(self) -> None:
        """Take them away; by then the kernels are there."""
        self._library._destroy()
        for name in self._names:  # where torch.compile has noted which kernel a key has
            _operator(name)._dispatch_cache.clear()


def _waiting(name: str, load: Callable[[], object]) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        load()
        return _operator(name)(*args, **kwargs)

    return call


def _operator(name: str) -> Any:
    return getattr(torch.ops.lltm_jit, name).default


def let_load(module: str, names: Iterable[str]) -> None:
    """Let ``torch.load(weights_only=True)`` make objects of classes, and import those only then."""

    def make(cls: type, *args: Any) -> Any:
        real = getattr(import_module(cls.__module__), cls.__name__)
        # Under another name, because torch keeps one class of each.
        torch.serialization.add_safe_globals([(real, f"{module}:{cls.__name__}")])
        return real.__new__(real, *args)

    body = {"__module__": module, "__new__": make}
    torch.serialization.add_safe_globals([type(name, (), dict(body)) for name in names])


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call a function with a module: now, or once the program has imported it."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Finds one module once, as Python does, and has it acted on when it has been executed."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name, self.act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
