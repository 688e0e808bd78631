"""Arguments that the StyleGAN operators share: the forms they have, and what is refused.

Kernels check theirs in C++. These are the counterparts for references, and for functions that are
composed in Python: one rule, whatever runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import NoReturn, SupportsIndex, TypeGuard

import torch
from torch import Tensor

from lltm_jit._library import autocasts, refuse_non_number, refuse_non_tensor

Factor = int | Sequence[int]  # of both axes, or [x, y]
Padding = int | Sequence[int]  # on all sides, [x, y], or [x0, x1, y0, y1]

_PAIR = "an int or [x, y]"
_SIDES = "an int, [x, y] or [x0, x1, y0, y1]"
_SEQUENCES = (list, tuple, Sequence)  # the last alone finds lists and tuples more slowly


def pair(function: str, name: str, factor: Factor) -> tuple[int, int]:
    """A factor of both axes as [x, y]; a list of one is its number, as in torch."""
    if isinstance(factor, int):
        return (factor, factor)
    if isinstance(factor, _SEQUENCES):  # to ask for SupportsIndex first would take microseconds
        if len(factor) in (1, 2):
            return (factor[0], factor[-1])
    elif is_index(factor):  # of numpy
        return (index(factor),) * 2
    _refuse(function, name, _PAIR, factor)


def sides_of(function: str, padding: Padding) -> tuple[int, int, int, int]:
    """A padding as [x0, x1, y0, y1]."""
    if isinstance(padding, (int, torch.SymInt)):
        return (padding,) * 4
    if isinstance(padding, _SEQUENCES):  # to ask for SupportsIndex first would take microseconds
        if len(padding) in (1, 2):
            return (padding[0], padding[0], padding[-1], padding[-1])
        if len(padding) == 4:
            return (padding[0], padding[1], padding[2], padding[3])
    elif is_index(padding):  # of numpy
        return (index(padding),) * 4
    _refuse(function, "padding", _SIDES, padding)


def refuse_wrong_pair(function: str, name: str, factor: Factor) -> None:
    """Refuse a factor that :func:`pair` takes, but that holds something else than ints.

    For calls that have failed, as :func:`refuse_wrong_sides`: a look before each would cost time.
    """
    if not all(map(is_index, pair(function, name, factor))):
        _refuse(function, name, _PAIR, factor)


def refuse_wrong_sides(function: str, padding: Padding) -> None:
    """Refuse a padding that :func:`sides_of` takes, but that holds something else than ints."""
    if not all(map(is_index, sides_of(function, padding))):
        _refuse(function, "padding", _SIDES, padding)


def is_index(value: object) -> TypeGuard[SupportsIndex]:
    """Whether it is a whole number; an array of numpy has an ``__index__`` of whatever shape."""
    if isinstance(value, int):  # torch.compile looks no further into those that vary
        return True
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


_FLOATS = (torch.half, torch.bfloat16, torch.float, torch.double)


def refuse_non_bool(function: str, name: str, value: object) -> None:
    """Name a flag that is no bool.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, bool):
        got = type(value).__name__
        message = f"{function}(): expected {name} to be a bool, but got {got}"
        raise TypeError(message) from None


def check_floats(function: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor of another dtype than the operators compute in."""
    if tensor.dtype not in _FLOATS:
        raise RuntimeError(
            f"{function}(): expected {name} to have dtype half, bfloat16, float or double, "
            f"but got {tensor.dtype}"
        )


def check_bias(
    function: str, input_name: str, input: Tensor, bias_name: str, bias: Tensor | None, dim: int
) -> Tensor | None:
    """The bias of dimension `dim`, as autocast makes it; one that does not fit is refused."""
    refuse_non_tensor(function, input_name, input)
    check_floats(function, input_name, input)
    if bias is None:
        return None
    refuse_non_tensor(function, bias_name, bias, optional=True)
    if autocasts(input) and bias.is_floating_point():
        bias = bias.to(input.dtype)
    begin = f"{function}(): expected {bias_name} to"
    if bias.dtype != input.dtype:
        raise RuntimeError(
            f"{begin} have the dtype of {input_name} ({input.dtype}), but got {bias.dtype}"
        )
    if bias.device != input.device:
        raise RuntimeError(
            f"{begin} be on the device of {input_name} ({input.device}), but got {bias.device}"
        )
    refuse_non_number(function, "dim", dim, whole=True)
    if not -input.ndim <= dim < input.ndim:
        raise RuntimeError(
            f"{function}(): expected dim to be one of the {input.ndim} dimensions of {input_name}, "
            f"but got {dim}"
        )
    if bias.ndim != 1:
        shape = list(bias.shape)
        raise RuntimeError(f"{begin} have 1 dimensions [channels], but got shape {shape}")
    if bias.shape[0] != input.shape[dim]:
        raise RuntimeError(
            f"{begin} have shape [{input_name}.shape[{dim}]] = [{input.shape[dim]}], "
            f"but got {list(bias.shape)}"
        )
    return bias


def check_image(function: str, x: Tensor) -> None:
    """Refuse what is no batch of images."""
    refuse_non_tensor(function, "x", x)
    check_floats(function, "x", x)
    if x.ndim != 4:
        raise RuntimeError(
            f"{function}(): expected x to have 4 dimensions [batch_size, channels, height, width], "
            f"but got shape {list(x.shape)}"
        )


def check_filter(function: str, name: str, f: Tensor | None, x: Tensor) -> None:
    """Refuse what is no filter for `x`, and one that waits for a gradient."""
    refuse_non_tensor(function, name, f, optional=True)
    if f is None:
        return
    check_floats(function, name, f)
    if f.ndim not in (1, 2):
        raise RuntimeError(
            f"{function}(): expected {name} to have shape [taps] or [taps_y, taps_x], "
            f"but got {list(f.shape)}"
        )
    if f.numel() == 0:
        raise RuntimeError(
            f"{function}(): expected {name} to have at least one tap, but got shape {list(f.shape)}"
        )
    if f.device != x.device:
        raise RuntimeError(
            f"{function}(): expected {name} to be on the device of x ({x.device}), "
            f"but got {f.device}"
        )
    if f.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{function}(): expected {name} not to require a gradient, since it gets none; "
            f"pass {name}.detach()"
        )


def check_upfirdn2d(
    function: str,
    x: Tensor,
    f: Tensor | None,
    up: tuple[int, int],
    down: tuple[int, int],
    sides: tuple[int, int, int, int],
    gain: float,
) -> None:
    """Refuse what the kernel of upfirdn2d refuses, too."""
    check_image(function, x)
    check_filter(function, "f", f, x)
    for name, factors in (("up", up), ("down", down)):
        refuse_wrong_pair(function, name, factors)
        if min(factors) < 1:
            raise RuntimeError(
                f"{function}(): expected {name} to be two positive numbers [x, y], "
                f"but got {list(factors)}"
            )
    refuse_wrong_sides(function, sides)
    refuse_non_number(function, "gain", gain)
    for axis, taps in enumerate(filter_size(function, f)):
        padded = x.shape[3 - axis] * up[axis] + sides[2 * axis] + sides[2 * axis + 1]
        if padded < taps:
            raise RuntimeError(
                f"{function}(): expected the {('width', 'height')[axis]} of the upsampled and "
                f"padded x to be at least the {taps} taps of the filter, but got {padded}"
            )
