"""Which implementation the StyleGAN operators run: their kernels, or plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_NAMES = ("cuda", "ref")
_chosen: list[list[str]] = []  # by implementation(), for all threads; the newest is last


@contextmanager
def implementation(impl: str) -> Iterator[None]:
    """Choose the implementation of all StyleGAN operators, in all threads, for a ``with`` block.

    Args:
        impl: ``"cuda"`` for the kernels, on the CPU as well as on a GPU, or ``"ref"`` for plain
            PyTorch. It goes before the argument of this name of each call.

    Raises:
        ValueError: it is neither.
    """
    _check("implementation", impl)
    choice = [impl]
    _chosen.append(choice)
    try:
        yield
    finally:  # those of other threads may have come after it
        del _chosen[next(i for i, other in enumerate(_chosen) if other is choice)]


def takes_reference(function: str, impl: str, tensor: Tensor) -> bool:
    """Whether a call runs in plain PyTorch: it is chosen, or the device has no kernels.

    Raises:
        ValueError: `impl` is neither ``"cuda"`` nor ``"ref"``.
    """
    _check(function, impl)
    chosen = _chosen[-1][0] if _chosen else impl
    # Quicker than `tensor.device.type`, which makes two objects.
    return chosen == "ref" or not (tensor.is_cuda or tensor.is_cpu or tensor.is_meta)


def _check(function: str, impl: str) -> None:
    if impl not in _NAMES:
        raise ValueError(f"{function}(): expected impl to be 'cuda' or 'ref', but got {impl!r}")
