"""Lets torch.compile trace our layers, although they derive from torch's recurrent layers.

torch.compile refuses torch's layers, because it would unroll them step by step. Ours call operators
of this package. ``torch._dynamo.config.allow_rnn`` is for both kinds, so it is set only while
torch.compile looks at one of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any

from torch import nn

from lltm_jit._library import when_imported


def allow(layers: type[nn.Module]) -> None:
    """Let torch.compile trace instances of a class."""
    when_imported("torch._dynamo.variables.builder", partial(_allow, layers))


def _allow(layers: type[nn.Module], builder: ModuleType) -> None:
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
