"""upfirdn2d: resampling of images with a finite filter, and functions based on it.

The paddings of ``upsample2d``, ``downsample2d`` and ``filter2d`` are those of Karras et al.,
"Analyzing and Improving the Image Quality of StyleGAN" (2020). Sizes: N is the batch size, C the
number of channels, H and W are the height and width of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import (
    autocasts,
    define,
    refuse,
    refuse_non_bool,
    refuse_non_number,
    refuse_wrong_types,
)
from lltm_jit.ops.stylegan._arguments import (
    Factor,
    Padding,
    centred,
    filter_size,
    pair,
    refuse_trained,
    sides_of,
)
from lltm_jit.ops.stylegan._implementation import by_torch, calls_kernels

if TYPE_CHECKING:  # it need not be installed
    import numpy as np

Taps: TypeAlias = (
    "Tensor | np.ndarray[Any, Any] | Sequence[float] | Sequence[Sequence[float]] | float | None"
)

define(
    "stylegan",
    "upfirdn2d(Tensor x, Tensor? f, int[2] up, int[2] down, SymInt[4] padding, bool flip_filter,"
    " float gain) -> Tensor",
)


def upfirdn2d(
    x: Tensor,
    f: Tensor | None,
    up: Factor = 1,
    down: Factor = 1,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Upsample a batch of images with zeros, pad, filter, and downsample it.

    On each axis it inserts ``up - 1`` zeros after every sample, pads with zeros (or crops, if the
    padding is negative), convolves with the filter, and keeps every ``down``-th result. With F
    taps on an axis the result has ``(in * up + before + after - F) // down + 1`` elements there.

    Source of the maths: P. P. Vaidyanathan, "Multirate Systems and Filter Banks" (1993).

    Args:
        x: (N, C, H, W) of any strides, in half, bfloat16, float or double. 16-bit types are
            computed in float, and rounded once.
        f: the filter: (taps,) for a separable one, applied to both axes, or (taps_y, taps_x). It
            is on the device of ``x``, in any of the dtypes above, and gets no gradient. ``None``
            is a single tap of 1.
        up, down: upsampling and downsampling factor: an int, or [x, y].
        padding: zeros around the upsampled image, negative to crop: an int, [x, y], or
            [x0, x1, y0, y1].
        flip_filter: if true, correlate with the filter; if false, convolve.
        gain: factor of the result.
        impl: ``"cuda"`` for the kernels, which also run on the CPU; ``"ref"`` for ATen operations.

    Returns:
        (N, C, H', W') in the dtype of ``x``, channels_last if ``x`` is. It is differentiable any
        number of times in ``x``.

    Raises:
        RuntimeError: if a shape, dtype or device does not match, the filter is larger than the
            padded image, or ``f`` requires a gradient.
        ValueError: if ``up``, ``down``, ``padding`` or ``impl`` is none of the above.
        TypeError: if ``x`` or ``f`` is not a tensor, ``gain`` is not a number, or ``flip_filter``
            is not a bool.

    Example:
        >>> x = torch.tensor([[[[1.0, 2.0]]]])
        >>> upfirdn2d(x, torch.ones(1, 2), up=[2, 1], padding=[1, 0, 0, 0])
        tensor([[[[1., 1., 2., 2.]]]])
    """
    return _resample("upfirdn2d", x, f, up, down, padding, flip_filter, gain, impl, centered=False)


def _resample(
    function: str,
    x: Tensor,
    f: Tensor | None,
    up: Factor,
    down: Factor,
    padding: Padding,
    flip_filter: bool,
    gain: float,
    impl: str,
    centered: bool,
) -> Tensor:
    """Resample; if `centered`, with more padding and gain, for the factors alone."""
    try:
        if calls_kernels(impl):
            args = (x, f, up, down, padding, flip_filter, gain, centered)
            y = native.stylegan.resample2d(*args)
            if y is not NotImplemented:
                return y
        refuse_non_bool(function, "flip_filter", flip_filter)
        pairs = pair(function, "up", up), pair(function, "down", down)
        sides: Sequence[int] = sides_of(function, padding)
        if centered:
            sides = centred(sides, filter_size(function, f), *pairs)
            gain = gain * pairs[0][0] * pairs[0][1]
        given = (x, f, *pairs, sides, flip_filter, gain)
        refuse_trained("upfirdn2d", f=f)
        # Autocast would cast the operands of the convolution under vmap.
        with torch.autocast(x.device.type, enabled=False) if autocasts(x) else nullcontext():
            return by_torch("upfirdn2d", given, impl)
    except (AttributeError, TypeError, RuntimeError):
        refuse_wrong_types("upfirdn2d", (x, f))
        pair(function, "up", up)  # a call of the kernels has not checked it
        pair(function, "down", down)
        sides_of(function, padding, checked=True)
        refuse_non_bool(function, "flip_filter", flip_filter)
        refuse_non_number(function, "gain", gain)
        raise


def setup_filter(
    f: Taps,
    device: torch.device | str = "cpu",
    normalize: bool = True,
    flip_filter: bool = False,
    gain: float = 1,
    separable: bool | None = None,
) -> Tensor:
    """Make a filter for the resampling functions.

    Args:
        f: the taps: (taps_y, taps_x) or (taps,). A number or ``None`` is a single tap.
        device: the device of the result.
        normalize: whether to divide by the sum of the taps.
        flip_filter: whether to reverse the filter on both axes.
        gain: factor of the whole two-dimensional filter.
        separable: whether a 1-D filter stays 1-D; if not, it becomes its outer product with
            itself. By default it stays 1-D if it has at least 8 taps.

    Returns:
        Float tensor of shape (taps_y, taps_x) or (taps,).

    Raises:
        ValueError: if the filter has more than two dimensions or no taps, if it is 2-D but
            ``separable`` is true, or if it is separable and ``gain`` is negative.

    Example:
        >>> setup_filter([1, 3, 3, 1]).sum()
        tensor(1.)
    """
    taps = torch.as_tensor(1.0 if f is None else f, dtype=torch.float32).detach()
    if taps.ndim > 2 or taps.numel() == 0:
        wanted = "f to have 0 to 2 dimensions and at least one tap"
        refuse("setup_filter", wanted, f"shape {list(taps.shape)}", ValueError)
    if taps.ndim == 0:
        taps = taps[None]
    if separable is None:
        separable = taps.ndim == 1 and taps.numel() >= 8
    if separable and taps.ndim == 2:
        wanted = "f to have 1 dimension for a separable filter"
        refuse("setup_filter", wanted, f"shape {list(taps.shape)}", ValueError)
    if taps.ndim == 1 and not separable:
        taps = taps.outer(taps)
    if taps.ndim == 1 and gain < 0:  # each axis takes its root
        refuse("setup_filter", "gain not to be negative for a separable filter", gain, ValueError)
    if normalize:
        taps = taps / taps.sum()
    if flip_filter:
        taps = taps.flip([*range(taps.ndim)])
    return (taps * gain ** (taps.ndim / 2)).to(device=device, copy=True)


def filter2d(
    x: Tensor,
    f: Tensor | None,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Filter a batch of images and keep its size.

    Args:
        x, f, flip_filter, gain, impl: see :func:`upfirdn2d`.
        padding: in addition to the padding that keeps the size; an int, [x, y] or
            [x0, x1, y0, y1].

    Returns:
        (N, C, H, W), plus ``padding``.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.
    """
    return _resample("filter2d", x, f, 1, 1, padding, flip_filter, gain, impl, centered=True)


def upsample2d(
    x: Tensor,
    f: Tensor | None,
    up: Factor = 2,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Enlarge a batch of images ``up`` times; see :func:`upfirdn2d`.

    Args:
        x, f, up, flip_filter, impl: see :func:`upfirdn2d`.
        padding: around the result, in addition to the padding that makes it ``up`` times as large.
        gain: factor of the result, in addition to ``up_x * up_y``, which keeps the brightness.

    Returns:
        (N, C, H * up_y, W * up_x), plus ``padding``.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.

    Example:
        >>> upsample2d(torch.ones(1, 1, 8, 8), setup_filter([1, 3, 3, 1])).shape
        torch.Size([1, 1, 16, 16])
    """
    return _resample("upsample2d", x, f, up, 1, padding, flip_filter, gain, impl, centered=True)


def downsample2d(
    x: Tensor,
    f: Tensor | None,
    down: Factor = 2,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Shrink a batch of images ``down`` times; see :func:`upfirdn2d`.

    Args:
        x, f, down, flip_filter, gain, impl: see :func:`upfirdn2d`.
        padding: around ``x``, in addition to the padding that makes the result ``down`` times
            smaller.

    Returns:
        (N, C, H // down_y, W // down_x), plus what ``padding`` adds.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.
    """
    return _resample("downsample2d", x, f, 1, down, padding, flip_filter, gain, impl, centered=True)
