"""upfirdn2d in plain PyTorch, and the forms that its arguments have."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import NoReturn, SupportsIndex, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from lltm_jit.ops._library import refuse_non_tensor
from lltm_jit.ops.stylegan._implementation import without_autocast

Factor = int | Sequence[int]  # of both axes, or [x, y]
Padding = int | Sequence[int]  # on all sides, [x, y], or [x0, x1, y0, y1]

_PAIR = "an int or [x, y]"
_SIDES = "an int, [x, y] or [x0, x1, y0, y1]"
_SEQUENCES = (list, tuple, Sequence)  # the last alone finds lists and tuples more slowly


def pair(function: str, name: str, factor: Factor) -> tuple[int, int]:
    """A factor of both axes as [x, y]."""
    if isinstance(factor, int):
        return (factor, factor)
    if isinstance(factor, _SEQUENCES):  # to ask for SupportsIndex first would take microseconds
        if len(factor) == 2:
            return (factor[0], factor[1])
    elif _is_index(factor):  # of numpy
        return (index(factor),) * 2
    _refuse(function, name, _PAIR, factor)


def sides_of(function: str, padding: Padding) -> tuple[int, int, int, int]:
    """A padding as [x0, x1, y0, y1]."""
    if isinstance(padding, (int, torch.SymInt)):
        return (padding,) * 4
    if isinstance(padding, _SEQUENCES):  # to ask for SupportsIndex first would take microseconds
        if len(padding) == 2:
            return (padding[0], padding[0], padding[1], padding[1])
        if len(padding) == 4:
            return (padding[0], padding[1], padding[2], padding[3])
    elif _is_index(padding):  # of numpy
        return (index(padding),) * 4
    _refuse(function, "padding", _SIDES, padding)


def refuse_wrong_pair(function: str, name: str, factor: Factor) -> None:
    """Refuse a factor that :func:`pair` takes, but that holds something else than ints.

    For calls that have failed, as :func:`refuse_wrong_sides`: a look before each would cost time.
    """
    if not all(map(_is_index, pair(function, name, factor))):
        _refuse(function, name, _PAIR, factor)


def refuse_wrong_sides(function: str, padding: Padding) -> None:
    """Refuse a padding that :func:`sides_of` takes, but that holds something else than ints."""
    if not all(map(_is_index, sides_of(function, padding))):
        _refuse(function, "padding", _SIDES, padding)


def _is_index(value: object) -> TypeGuard[SupportsIndex]:
    """Whether it is a whole number; an array of numpy has an ``__index__`` of whatever shape."""
    return isinstance(value, SupportsIndex) and not getattr(value, "ndim", 0)


def _refuse(function: str, name: str, wanted: str, value: object) -> NoReturn:
    raise ValueError(f"{function}(): expected {name} to be {wanted}, but got {value!r}") from None


def filter_size(function: str, f: Tensor | None) -> tuple[int, int]:
    """The taps of a filter on the axes x and y."""
    if f is None:
        return (1, 1)
    if not isinstance(f, Tensor):
        refuse_non_tensor(function, "f", f, optional=True)
    shape = f.shape
    if len(shape) not in (1, 2):
        raise RuntimeError(
            f"{function}(): expected f to have shape [taps] or [taps_y, taps_x], "
            f"but got {list(shape)}"
        )
    return (shape[-1], shape[0])


def upfirdn2d_reference(
    x: Tensor,
    f: Tensor | None,
    up: Factor = 1,
    down: Factor = 1,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
) -> Tensor:
    """``upfirdn2d`` in plain PyTorch: the definition, step by step. Float computes 16-bit types."""
    up_x, up_y = pair("upfirdn2d", "up", up)
    down_x, down_y = pair("upfirdn2d", "down", down)
    n, c, height, width = x.shape
    dtype = torch.double if x.dtype == torch.double else torch.float
    y = x.to(dtype)
    if up_x > 1 or up_y > 1:
        y = F.pad(y.reshape(n, c, height, 1, width, 1), (0, up_x - 1, 0, 0, 0, up_y - 1))
        y = y.reshape(n, c, height * up_y, width * up_x)
    sides = sides_of("upfirdn2d", padding)
    y = F.pad(y, [torch.sym_max(side, 0) for side in sides])
    if any(side < 0 for side in sides):  # a side may lose more than the image has
        y = F.pad(y, [torch.sym_min(side, 0) for side in sides])
    if f is None:
        y = y[:, :, ::down_y, ::down_x]
        return (y * gain).to(x.dtype)
    with without_autocast(x):
        weight = f.detach().to(dtype) if flip_filter else f.detach().to(dtype).flip(*range(f.ndim))
        if f.ndim == 2:
            y = _depthwise(y, weight, (down_y, down_x))
        else:
            y = _depthwise(y, weight[None, :], (1, down_x))
            y = _depthwise(y, weight[:, None], (down_y, 1))
    return (y * gain).to(x.dtype)


def _depthwise(x: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
    channels = x.shape[1]
    return F.conv2d(x, weight.expand(channels, 1, *weight.shape), stride=stride, groups=channels)
