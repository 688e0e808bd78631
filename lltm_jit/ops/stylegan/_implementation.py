"""Which implementation the StyleGAN operators run: their kernels, or their formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from lltm_jit import native
from lltm_jit._library import autocasts, refuse, when_imported

_NAMES = ("cuda", "ref")
_chosen: dict[object, str] = {}  # choices of implementation(), for all threads; the newest is last


@contextmanager
def implementation(impl: str) -> Iterator[None]:
    """Choose the implementation of all StyleGAN operators, in all threads, for a ``with`` block.

    Args:
        impl: ``"cuda"`` for the kernels, which also run on the CPU; ``"ref"`` for the definitions
            in ATen operations, which are exact rather than fast. It overrides the argument
            ``impl`` of each call.

    Raises:
        ValueError: if ``impl`` is neither.

    Example:
        >>> from lltm_jit.ops.bias_act import bias_act
        >>> with implementation("ref"):
        ...     y = bias_act(torch.ones(1, 2), act="relu", gain=1)
    """
    _check("implementation", impl)
    block = object()
    _chosen[block] = impl
    try:
        yield
    finally:
        del _chosen[block]


def calls_kernels(impl: str) -> bool:
    """Whether a call goes to the kernels' module at once, as nearly all do.

    A function of the module returns ``NotImplemented`` for all but plain tensors on a CPU or GPU.
    Only then are the arguments inspected, because that takes longer than work on small tensors.
    """
    chosen = [*_chosen.values()][-1] if _chosen and impl in _NAMES else impl
    return chosen == "cuda" and not is_dynamo_compiling()


def by_torch(
    operator: str, args: tuple[Any, ...], impl: str, in_aten: Callable[..., Tensor] | None = None
) -> Tensor:
    """Run torch's operator or the formula, which by default is that of C++."""
    if not takes_formula(operator, impl):
        return getattr(torch.ops.lltm_jit, operator)(*args)
    x, b, *others = args  # operators with a filter in b's place are called without autocast
    if b is not None and autocasts(x) and b.is_floating_point():  # as the operator does
        b = b.to(x.dtype)
    return in_aten(x, b, *others) if in_aten else formula(operator, x, b, *others)


def takes_formula(function: str, impl: str) -> bool:
    """Whether a call runs the operator's formula, not its kernels; refuses an unknown `impl`."""
    _check(function, impl)
    return ([*_chosen.values()][-1] if _chosen else impl) == "ref"


def formula(name: str, *args: Any) -> Any:
    """An operator of this family in ATen operations, as its ``.cpp`` files compose it."""
    return native.formula("stylegan", name, *args)


# torch.compile cannot look into it, but can trace what it calls.
when_imported("torch._dynamo", lambda dynamo: dynamo.allow_in_graph(formula))


def _check(function: str, impl: str) -> None:
    if impl not in _NAMES:
        refuse(function, "impl to be 'cuda' or 'ref'", repr(impl), ValueError)
