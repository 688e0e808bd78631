"""upfirdn2d: resampling of images with a finite filter, and what is made of it.

On each axis: ``up - 1`` zeros after every sample, padding (negative values crop), a finite
convolution without padding of its own, and every ``down``-th result from the first on.

Source of the maths: P. P. Vaidyanathan, "Multirate Systems and Filter Banks" (1993), for the
polyphase form; Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2020), for
the paddings of ``upsample2d``, ``downsample2d`` and ``filter2d``.

Sizes: N is the batch size, C the channels, H and W height and width of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import has_torch_function

from lltm_jit import native
from lltm_jit.ops._library import define, refuse_non_tensor
from lltm_jit.ops.stylegan._implementation import autocasts, takes_reference
from lltm_jit.ops.stylegan._upfirdn2d_reference import (
    Factor,
    Padding,
    filter_size,
    pair,
    sides_of,
    upfirdn2d_reference,
)

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
    """Upsample with zeros, pad, filter and downsample a batch of images.

    See :mod:`lltm_jit.ops.stylegan.upfirdn2d` for the steps. With F the taps of the filter on an
    axis, the result has ``(in * up + before + after - F) // down + 1`` elements there.

    Args:
        x: (N, C, H, W) of any strides; half, bfloat16, float or double. The 16-bit types are
            computed in float, and rounded once.
        f: (taps,) for both axes, one after the other, or (taps_y, taps_x); on the device of ``x``,
            of any of its dtypes; ``None`` for one tap of 1. It gets no gradient.
        up: how many samples become of one: a number, or [x, y].
        down: of how many samples one is kept: a number, or [x, y].
        padding: zeros around the upsampled image, negative to crop: a number, [x, y], or
            [x0, x1, y0, y1].
        flip_filter: whether the filter is used as it stands, a correlation; else it is turned
            round, a convolution.
        gain: multiplies the result.
        impl: ``"cuda"`` for the kernels, on the CPU too, or ``"ref"`` for plain PyTorch.

    Returns:
        (N, C, H', W'), of the dtype of ``x``; channels_last where ``x`` is. Differentiable any
        number of times with respect to ``x``.

    Raises:
        RuntimeError: if a shape, dtype or device does not fit, the filter is larger than the
            padded image, or ``f`` requires a gradient.
        ValueError: if ``up``, ``down``, ``padding`` or ``impl`` is none of the above.
        TypeError: if ``x`` or ``f`` is no tensor.
    """
    up, down = pair("upfirdn2d", "up", up), pair("upfirdn2d", "down", down)
    return _run(x, f, up, down, sides_of("upfirdn2d", padding), flip_filter, gain, impl)


def _run(
    x: Tensor,
    f: Tensor | None,
    up: tuple[int, int],
    down: tuple[int, int],
    padding: tuple[int, int, int, int],
    flip_filter: bool,
    gain: float,
    impl: str,
) -> Tensor:
    try:
        if takes_reference("upfirdn2d", impl, x):
            return upfirdn2d_reference(x, f, up, down, padding, flip_filter, gain)
        args = (x, f, up, down, padding, flip_filter, gain)
        if not (is_compiling() or has_torch_function((x, f))):
            return native.stylegan.upfirdn2d(*args)
        if autocasts(x):  # which would cast what is convolved under vmap
            with torch.autocast(x.device.type, enabled=False):
                return torch.ops.lltm_jit.upfirdn2d(*args)
        return torch.ops.lltm_jit.upfirdn2d(*args)
    except (AttributeError, TypeError, RuntimeError):
        refuse_non_tensor("upfirdn2d", "x", x)
        refuse_non_tensor("upfirdn2d", "f", f, optional=True)
        raise


def setup_filter(
    f: Taps,
    device: torch.device | str = "cpu",
    normalize: bool = True,
    flip_filter: bool = False,
    gain: float = 1,
    separable: bool | None = None,
) -> Tensor:
    """Make a filter for the other functions here.

    Args:
        f: its taps: (taps_y, taps_x), or (taps,); a number or ``None`` is one tap. Never changed.
        device: of the result.
        normalize: whether it is divided by the sum of its taps.
        flip_filter: whether it is turned round.
        gain: of the filter over a whole image.
        separable: whether a 1-D filter stays 1-D, else it becomes its outer product with itself. By
            default it stays from 8 taps on.

    Returns:
        Float tensor, (taps_y, taps_x) or (taps,).

    Raises:
        ValueError: if the filter has more than two dimensions, or no taps, or is 2-D and to be
            separable, or separable with a negative gain.
    """
    taps = torch.as_tensor(1.0 if f is None else f, dtype=torch.float32).detach()
    if taps.ndim > 2 or taps.numel() == 0:
        raise ValueError(
            "setup_filter(): expected f to have 0 to 2 dimensions and at least one tap, "
            f"but got shape {list(taps.shape)}"
        )
    if taps.ndim == 0:
        taps = taps[None]
    if separable is None:
        separable = taps.ndim == 1 and taps.numel() >= 8
    if separable and taps.ndim == 2:
        raise ValueError(
            "setup_filter(): expected f to have 1 dimension, as it is to be separable, "
            f"but got shape {list(taps.shape)}"
        )
    if taps.ndim == 1 and not separable:
        taps = taps.outer(taps)
    if taps.ndim == 1 and gain < 0:  # each axis takes its root
        raise ValueError(
            "setup_filter(): expected gain not to be negative for a separable filter, "
            f"but got {gain}"
        )
    if normalize:
        taps = taps / taps.sum()
    if flip_filter:
        taps = taps.flip(*range(taps.ndim))
    return (taps * gain ** (taps.ndim / 2)).to(device=device, copy=True)


def filter2d(
    x: Tensor,
    f: Tensor | None,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Filter a batch of images, whose size stays: :func:`upfirdn2d` without factors.

    Args:
        x, f, flip_filter, gain, impl: see :func:`upfirdn2d`.
        padding: more than the padding that keeps the size; a number, [x, y] or [x0, x1, y0, y1].

    Returns:
        (N, C, H, W), larger by the padding.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.
    """
    return _centered("filter2d", x, f, (1, 1), (1, 1), padding, flip_filter, gain, impl)


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
        padding: of the result, more than what makes it ``up`` times as large.
        gain: multiplies the result, beside the ``up_x * up_y`` that keeps its brightness.

    Returns:
        (N, C, H * up_y, W * up_x), larger by the padding.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.
    """
    up = pair("upsample2d", "up", up)
    gain = gain * up[0] * up[1]
    return _centered("upsample2d", x, f, up, (1, 1), padding, flip_filter, gain, impl)


def downsample2d(
    x: Tensor,
    f: Tensor | None,
    down: Factor = 2,
    padding: Padding = 0,
    flip_filter: bool = False,
    gain: float = 1,
    impl: str = "cuda",
) -> Tensor:
    """Reduce a batch of images ``down`` times; see :func:`upfirdn2d`.

    Args:
        x, f, down, flip_filter, gain, impl: see :func:`upfirdn2d`.
        padding: of ``x``, more than what makes the result ``down`` times smaller.

    Returns:
        (N, C, H // down_y, W // down_x), larger by the padding.

    Raises:
        RuntimeError, ValueError, TypeError: as :func:`upfirdn2d`.
    """
    down = pair("downsample2d", "down", down)
    return _centered("downsample2d", x, f, (1, 1), down, padding, flip_filter, gain, impl)


def _centered(
    function: str,
    x: Tensor,
    f: Tensor | None,
    up: tuple[int, int],
    down: tuple[int, int],
    padding: Padding,
    flip_filter: bool,
    gain: float,
    impl: str,
) -> Tensor:
    """Filter with `padding`, and around it what makes the result up/down times as large."""
    sides = sides_of(function, padding)
    try:
        if (
            impl == "cuda"
            and not (is_compiling() or has_torch_function((x, f)))
            and not takes_reference(function, impl, x)
        ):
            args = (x, f, up, down, sides, flip_filter, gain)
            return native.stylegan.centered_upfirdn2d(*args)
    except (AttributeError, TypeError, RuntimeError):
        refuse_non_tensor("upfirdn2d", "x", x)
        refuse_non_tensor("upfirdn2d", "f", f, optional=True)
        raise
    x0, x1, y0, y1 = sides
    taps_x, taps_y = filter_size(function, f)
    sides = (
        x0 + (taps_x + up[0] - down[0]) // 2,
        x1 + (taps_x - up[0] - down[0] + 1) // 2,
        y0 + (taps_y + up[1] - down[1]) // 2,
        y1 + (taps_y - up[1] - down[1] + 1) // 2,
    )
    return _run(x, f, up, down, sides, flip_filter, gain, impl)
