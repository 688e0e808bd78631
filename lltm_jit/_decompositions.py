"""This package's operators in operations of ATen, for tools that know no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

from lltm_jit import native
from lltm_jit._library import OPERATORS


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return functions that express this package's operators in ATen operations.

    For :meth:`torch.export.ExportedProgram.run_decompositions`. The result runs without this
    package, and other tools can convert it, such as ``torch.onnx.export(program, dynamo=True)``. A
    layer becomes an unrolled loop, so its number of steps is fixed, and should be small.

    Returns:
        A table of functions, by operator. Merge it with torch's own to get core ATen operations
        only, ``{**torch.export.default_decompositions(), **lltm_jit.decompositions()}``.

    Example:
        >>> program = torch.export.export(lltm_jit.LLTM(3, 4), (torch.randn(5, 2, 3),))
        >>> plain = program.run_decompositions(lltm_jit.decompositions())
        >>> {n.target.namespace for n in plain.graph.nodes if hasattr(n.target, "namespace")}
        {'aten'}
    """
    return {
        getattr(torch.ops.lltm_jit, name).default: _decomposition(family, name)
        for family, names in OPERATORS.items()
        for name in names
    }


def _decomposition(family: str, name: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.lltm_jit, name).default

    def decompose(*args: Any, **named: Any) -> Any:
        native.load(family)  # which has the formula
        explicit = torch._C._dispatch_has_kernel_for_dispatch_key(
            operator.name(), "CompositeExplicitAutograd"
        )
        key = "CompositeExplicitAutograd" if explicit else "CompositeImplicitAutograd"
        return operator._op_dk(getattr(DispatchKey, key), *args, **named)

    return decompose
