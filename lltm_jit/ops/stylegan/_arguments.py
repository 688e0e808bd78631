"""Arguments that the StyleGAN operators share: the forms they have, and what is refused.

Operators check their arguments in C++. These checks have the same rules, for functions that are
composed in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex, TypeGuard

import torch
from torch import Tensor

from lltm_jit._library import DTYPES, refuse, refuse_non_tensor

Factor = int | Sequence[int]  # one number for both axes, or [x, y]
Padding = int | Sequence[int]  # on all sides, [x, y], or [x0, x1, y0, y1]

_SEQUENCES = (list, tuple, Sequence)  # the last alone finds lists and tuples more slowly


def pair(function: str, name: str, factor: Factor) -> tuple[int, int]:
    """A factor of both axes as [x, y]; a list of one number stands for it, as in torch."""
    numbers = factor if isinstance(factor, _SEQUENCES) else (factor,)
    if len(numbers) not in (1, 2) or not all(map(is_index, numbers)):
        refuse(function, f"{name} to be an int or [x, y]", repr(factor), ValueError)
    x, y = (n if isinstance(n, int) else index(n) for n in (numbers[0], numbers[-1]))
    return x, y


def sides_of(function: str, padding: Padding, checked: bool = False) -> tuple[int, ...]:
    """A padding as [x0, x1, y0, y1].

    If not `checked`, it may still hold something else than ints, because a check before each call
    would cost time.
    """
    if isinstance(padding, (int, torch.SymInt)):
        return (padding,) * 4
    sides: Sequence[int] = ()
    if isinstance(padding, _SEQUENCES):  # to ask for SupportsIndex first would take microseconds
        sides = padding
    elif is_index(padding):  # an integer of numpy
        sides = (index(padding),)
    if len(sides) in (1, 2):
        sides = (sides[0], sides[0], sides[-1], sides[-1])
    if len(sides) != 4 or (checked and not all(map(is_index, sides))):
        wanted = "padding to be an int, [x, y] or [x0, x1, y0, y1]"
        refuse(function, wanted, repr(padding), ValueError)
    return tuple(sides)


def centred(
    sides: Sequence[int], taps: Sequence[int], up: Sequence[int], down: Sequence[int]
) -> list[int]:
    """`sides`, and around them the padding that makes the result up/down times as large."""
    sides = [*sides]
    for axis, (f, u, d) in enumerate(zip(taps, up, down, strict=True)):
        sides[2 * axis] += (f + u - d) // 2
        sides[2 * axis + 1] += (f - u - d + 1) // 2
    return sides


def is_index(value: object) -> TypeGuard[SupportsIndex]:
    """Whether a value is a whole number; arrays of numpy have ``__index__`` in any shape."""
    if isinstance(value, int):  # torch.compile cannot inspect varying ints further
        return True
    return isinstance(value, SupportsIndex) and not getattr(value, "ndim", 0)


def filter_size(function: str, f: Tensor | None) -> tuple[int, int]:
    """The taps of a filter on the axes x and y."""
    if f is None:
        return (1, 1)
    if not isinstance(f, Tensor):
        refuse_non_tensor(function, "f", f, optional=True)
    shape = f.shape
    if len(shape) not in (1, 2):
        refuse(function, "f to have shape [taps] or [taps_y, taps_x]", list(shape))
    return (shape[-1], shape[0])


def check_floats(function: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor of another dtype than the operators compute in."""
    if tensor.dtype not in DTYPES:
        refuse(function, f"{name} to have dtype half, bfloat16, float or double", tensor.dtype)


def check_filter(function: str, name: str, f: Tensor | None, x: Tensor) -> None:
    """Refuse a tensor that is no filter for `x`, or that requires a gradient."""
    refuse_non_tensor(function, name, f, optional=True)
    if f is None:
        return
    check_floats(function, name, f)
    if f.ndim not in (1, 2):
        refuse(function, f"{name} to have shape [taps] or [taps_y, taps_x]", list(f.shape))
    if f.numel() == 0:
        refuse(function, f"{name} to have at least one tap", f"shape {list(f.shape)}")
    if f.device != x.device:
        refuse(function, f"{name} to be on the device of x ({x.device})", f.device)
    refuse_trained(function, **{name: f})


def refuse_trained(function: str, **filters: Tensor | None) -> None:
    """Refuse filters that require a gradient."""
    for name, f in filters.items():
        if f is not None and f.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{function}(): expected {name} not to require a gradient, since it gets none; "
                f"pass {name}.detach()"
            )
