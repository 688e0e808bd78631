"""Layers that are torch's, too, for torch.compile, which refuses torch's recurrent layers.

It would unroll their operators step by step. It may trace ours, which call operators of this
package. ``torch._dynamo.config.allow_rnn`` is for both kinds, so it is set only while torch.compile
looks at one of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from torch import nn

_BUILDER = "torch._dynamo.variables.builder"


def allow(layers: type[nn.Module]) -> None:
    """Let torch.compile trace instances of a class, now or when a program first imports it."""
    if _BUILDER in sys.modules:
        _allow(sys.modules[_BUILDER], layers)
    else:
        sys.meta_path.insert(0, _Finder(layers))


class _Finder(MetaPathFinder):
    """Finds the module that refuses layers, once, and changes it when it has been executed."""

    def __init__(self, layers: type[nn.Module]) -> None:
        self.layers = layers

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _BUILDER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _allow(module, self.layers)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _allow(builder: ModuleType, layers: type[nn.Module]) -> None:
    look: Callable[..., Any] | None = getattr(builder.VariableBuilder, "wrap_module", None)
    if look is None:  # another torch: what calls a layer runs uncompiled
        return

    @wraps(look)
    def wrap_module(self: Any, value: nn.Module) -> Any:
        if not isinstance(value, layers):
            return look(self, value)
        with builder.config.patch(allow_rnn=True):
            return look(self, value)

    builder.VariableBuilder.wrap_module = wrap_module
