"""Stand-ins for a family's kernels until it is loaded, and for classes that files contain.

A stand-in for a kernel waits until the kernel is loaded, and calls the operator again.

Note [Keys of the placeholders]
A placeholder is registered under every key that a call of an operator may come to first: Autograd
and FuncTorchBatched (vmap), and the devices for inference mode, where there is no Autograd. The
key CompositeImplicitAutograd would cover all of these, but torch.compile takes a kernel of that key
for the operator's decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import torch

_KEYS = ("Autograd", "FuncTorchBatched", "CPU", "CUDA", "Meta")


class Placeholders:
    """Kernels for some operators that call ``load`` and then the operator again."""

    def __init__(self, names: Iterable[str], load: Callable[[], object]) -> None:
        self._library = torch.library.Library("lltm_jit", "IMPL")
        self._names = [*names]
        for name in self._names:
            call = _waiting(name, load)
            for key in _KEYS:
                self._library.impl(name, call, key)

    def remove(self) -> None:
        """Remove the placeholders; the kernels must be registered by then."""
        self._library._destroy()
        for name in self._names:  # torch.compile has cached the keys' kernels there
            _operator(name)._dispatch_cache.clear()


def _waiting(name: str, load: Callable[[], object]) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        load()
        return _operator(name)(*args, **kwargs)

    return call


def _operator(name: str) -> Any:
    return getattr(torch.ops.lltm_jit, name).default


def let_load(module: str, names: Iterable[str]) -> None:
    """Let ``torch.load(weights_only=True)`` make objects of classes, which are imported then."""

    def make(cls: type, *args: Any) -> Any:
        real = getattr(import_module(cls.__module__), cls.__name__)
        # Under another name, because torch keeps one class per name.
        torch.serialization.add_safe_globals([(real, f"{module}:{cls.__name__}")])
        return real.__new__(real, *args)

    body = {"__module__": module, "__new__": make}
    torch.serialization.add_safe_globals([type(name, (), dict(body)) for name in names])
