"""Which implementation the StyleGAN operators run: their kernels, or plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_NAMES = ("cuda", "ref")
_chosen: str | None = None  # by implementation(), for all threads


@contextmanager
def implementation(impl: str) -> Iterator[None]:
    """Choose the implementation of all StyleGAN operators, in all threads, for a ``with`` block.

    Args:
        impl: ``"cuda"`` for the kernels, on the CPU as well as on a GPU, or ``"ref"`` for plain
            PyTorch. It goes before the argument of this name of each call.

    Raises:
        ValueError: it is neither.
    """
    global _chosen
    _check("implementation", impl)
    before, _chosen = _chosen, impl
    try:
        yield
    finally:
        _chosen = before


def takes_reference(function: str, impl: str, tensor: Tensor) -> bool:
    """Whether a call runs in plain PyTorch: it is chosen, or the device has no kernels.

    Raises:
        ValueError: `impl` is neither ``"cuda"`` nor ``"ref"``.
    """
    _check(function, impl)
    return (_chosen or impl) == "ref" or tensor.device.type not in ("cpu", "cuda", "meta")


def _check(function: str, impl: str) -> None:
    if impl not in _NAMES:
        raise ValueError(f"{function}(): expected impl to be 'cuda' or 'ref', but got {impl!r}")
