"""filtered_lrelu: a leaky ReLU between an upsampling and a downsampling filter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import autocasts, define, refuse_non_bool, refuse_wrong_types
from lltm_jit.jit import variants
from lltm_jit.ops.stylegan._arguments import refuse_trained, sides_of
from lltm_jit.ops.stylegan._implementation import by_torch, calls_kernels

_FILTERS = "Tensor? fu, Tensor? fd"
_CALL = (
    f"Tensor x, {_FILTERS}, Tensor? b, int up, int down, SymInt[] padding, float gain, "
    "float slope, float? clamp, bool flip_filter"
)

define(
    "stylegan",
    # padding is [left, right, top, bottom]; gain is without up^2.
    f"filtered_lrelu({_CALL}) -> Tensor",
    # Also the signs that the backward pass needs, int32 of [batch, channels, words], in a map of
    # these phases: sign_map.h.
    f"filtered_lrelu_forward({_CALL}, int[] sign_phase) -> (Tensor y, Tensor signs)",
    # Linear in x: signs, of sign_size [height, width], in place of the activation and the clamp.
    # The sample [i, j] between the filters belongs to the sign [i, j] + sign_offset. sums is y's
    # sum over all but the channels, or empty.
    f"filtered_lrelu_linear(Tensor x, Tensor signs, {_FILTERS}, int up, int down, "
    "SymInt[] padding, SymInt[] sign_size, SymInt[] sign_offset, int[] sign_phase, float gain, "
    "float slope, bool flip_filter, bool with_sums) -> (Tensor y, Tensor sums)",
)

_KERNELS = native.kernels_directory()

# The kernels on tensor cores. Each is compiled for the numbers of its calls.
variants.declare(
    variants.Variant(
        "stylegan.filtered_lrelu",
        _KERNELS / "stylegan" / "filtered_lrelu" / "variants" / "mma.cu",
        (_KERNELS,),
        prepare="filtered_lrelu on tensors of these sizes and dtype, forward and backward,",
        optional=True,
        device_code=True,
        nvrtc=True,
    )
)


def filtered_lrelu(
    x: Tensor,
    fu: Tensor | None = None,
    fd: Tensor | None = None,
    b: Tensor | None = None,
    up: int = 1,
    down: int = 1,
    padding: int | Sequence[int] = 0,
    gain: float = math.sqrt(2),
    slope: float = 0.2,
    clamp: float | None = None,
    flip_filter: bool = False,
    impl: str = "cuda",
) -> Tensor:
    """Add a bias, upsample, apply a leaky ReLU, and downsample, in one kernel.

    For each plane of ``x``, with ``*`` for a convolution without padding on both axes::

        u = (x + b, up - 1 zeros after each sample, padded) * fu, times up^2
        v = clamp(leaky_relu(gain u))
        y = (v * fd), every down-th sample

    Source of the maths: Karras et al., "Alias-Free Generative Adversarial Networks" (2021).

    Args:
        x: (N, C, H, W) of any layout, in half, bfloat16, float or double.
        fu: the filter after upsampling: (taps,) for a separable one, or (height, width). It is on
            the device of ``x``, in any floating-point dtype; taps are used in float32. ``None`` is
            a single tap of 1.
        fd: the filter before downsampling, likewise.
        b: (C,) in the dtype of ``x``, or ``None``. ``torch.autocast`` casts it to that dtype.
        up, down: upsampling and downsampling factor on both axes.
        padding: zeros around the upsampled plane, counted in its samples: an int, ``[x, y]``, or
            ``[left, right, top, bottom]``. Negative numbers crop.
        gain: factor before the leaky ReLU, in addition to ``up**2``.
        slope: factor of negative values.
        clamp: the largest magnitude after the leaky ReLU, or ``None``.
        flip_filter: if true, correlate with the filters; if false, convolve.
        impl: ``"cuda"`` for the kernels, which also run on the CPU; ``"ref"`` for ATen operations.

    Returns:
        Contiguous (N, C, H', W') in the dtype of ``x``, where
        ``H' = (H * up + top + bottom - (taps_u - 1) - (taps_d - 1) + down - 1) // down``.
        It is differentiable any number of times in ``x`` and ``b``; the activation's derivative is
        1 at 0 and at the clamp.

    Note:
        16-bit types are computed in float, except on tensor cores, where the samples between the
        filters are half. For float inputs these samples keep 22 bits there, counted from the
        largest sample nearby.

    Raises:
        RuntimeError: if a shape, dtype, device or number does not match, or a filter requires a
            gradient; the message gives both values.
        TypeError: if an argument is not a tensor, a number or a bool, but should be.
        ValueError: if ``padding`` is not an int or a list of 2 or 4, or ``impl`` is unknown.

    Example:
        >>> f = torch.ones(12) / 12
        >>> filtered_lrelu(torch.randn(1, 3, 16, 16), f, f, up=2, down=2, padding=11).shape
        torch.Size([1, 3, 16, 16])
    """
    sides = sides_of("filtered_lrelu", padding)
    args = (x, fu, fd, b, up, down, sides, gain, slope, clamp, flip_filter)
    try:
        if autocasts(x):  # it would cast products under vmap, but not b
            with torch.autocast(x.device.type, enabled=False):
                b = None if b is None else b.to(x.dtype)
                return filtered_lrelu(
                    x, fu, fd, b, up, down, padding, gain, slope, clamp, flip_filter, impl
                )
        refuse_non_bool("filtered_lrelu", "flip_filter", flip_filter)
        y = native.stylegan.filtered_lrelu(*args) if calls_kernels(impl) else NotImplemented
        if y is NotImplemented:
            refuse_trained("filtered_lrelu", fu=fu, fd=fd)
            y = by_torch("filtered_lrelu", args, impl)
        return y
    except (AttributeError, RuntimeError, TypeError):
        refuse_wrong_types("filtered_lrelu", args)
        sides_of("filtered_lrelu", padding, checked=True)
        raise
