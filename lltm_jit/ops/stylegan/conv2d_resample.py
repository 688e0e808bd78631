"""conv2d_resample: a convolution of an image that is resampled with a filter.

By definition it upsamples and filters the image, convolves it, and filters and downsamples the
result. A filter can be applied before or after a convolution without a bias, and a transposed or
strided convolution skips samples that are zero or dropped. So there are faster ways to the same
result, and this module picks one.
"""

from __future__ import annotations

from operator import index

from torch import Tensor

from lltm_jit._library import autocasts, refuse, refuse_non_bool, refuse_non_tensor
from lltm_jit.ops.conv2d_gradfix import conv2d, conv_transpose2d
from lltm_jit.ops.stylegan._arguments import (
    Padding,
    centred,
    check_filter,
    filter_size,
    is_index,
    sides_of,
)
from lltm_jit.ops.stylegan.upfirdn2d import upfirdn2d


def conv2d_resample(
    x: Tensor,
    w: Tensor,
    f: Tensor | None = None,
    up: int = 1,
    down: int = 1,
    padding: Padding = 0,
    groups: int = 1,
    flip_weight: bool = True,
    flip_filter: bool = False,
) -> Tensor:
    """Convolve a batch of images between upsampling and downsampling.

    Source of the maths: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN"
    (2020).

    Args:
        x: (N, C, H, W) in half, bfloat16, float or double.
        w: (out_channels, C / groups, kernel_height, kernel_width), with the dtype and device of
            ``x``. It gets no gradient within
            :func:`lltm_jit.ops.conv2d_gradfix.no_weight_gradients`.
        f: the filter of both resamplings, from
            :func:`~lltm_jit.ops.stylegan.upfirdn2d.setup_filter`.
        up: upsampling factor before the convolution.
        down: downsampling factor after the convolution.
        padding: zeros around the upsampled image, in addition to those for the filters: an int,
            [x, y], or [x0, x1, y0, y1].
        groups: the number of groups of channels that are convolved separately.
        flip_weight: if true, correlate with ``w``, as ``torch.nn.functional.conv2d`` does; if
            false, convolve.
        flip_filter: as in :func:`~lltm_jit.ops.stylegan.upfirdn2d.upfirdn2d`.

    Returns:
        (N, out_channels, H', W'), differentiable any number of times in ``x`` and ``w``.

    Raises:
        RuntimeError: if a shape, dtype or device does not match.
        ValueError: if ``up``, ``down`` or ``groups`` is not a positive int, or ``padding`` is none
            of the above.
        TypeError: if ``x``, ``w`` or ``f`` is not a tensor, or a flag is not a bool.

    Example:
        >>> x, w, f = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.ones(4, 4) / 16
        >>> conv2d_resample(x, w, f, up=2, padding=1).shape
        torch.Size([1, 4, 16, 16])
    """
    up, down, groups = _check(x, w, f, up, down, groups)
    refuse_non_bool("conv2d_resample", "flip_weight", flip_weight)
    refuse_non_bool("conv2d_resample", "flip_filter", flip_filter)
    # torch refuses a bool.
    sides = [+side for side in sides_of("conv2d_resample", padding, checked=True)]
    taps = filter_size("conv2d_resample", f)
    if up > 1:
        sides = centred(sides, taps, (up, up), (1, 1))
    if down > 1:
        sides = centred(sides, taps, (1, 1), (down, down))
    height, width = w.shape[2:]
    if up == 1 and down == 1:
        return _unresampled(x, w, sides, groups, flip_weight)
    if up == 1 and height == width == 1:
        x = upfirdn2d(x, f, down=down, padding=sides, flip_filter=flip_filter)
        return _convolve(x, w, groups, flip_weight)
    if up == 1:
        x = upfirdn2d(x, f, padding=sides, flip_filter=flip_filter)
        return _convolve(x, w, groups, flip_weight, stride=down)
    if height == width == 1:
        x = _convolve(x, w, groups, flip_weight)
        x = upfirdn2d(x, f, up, 1, sides, flip_filter, up * up)
    else:
        x, left = _convolve_upsampled(x, w, up, sides, groups, flip_weight)
        x = upfirdn2d(x, f, 1, 1, left, flip_filter, up * up)
    return upfirdn2d(x, f, down=down, flip_filter=flip_filter) if down > 1 else x


def _check(x: Tensor, w: Tensor, f: Tensor | None, up: int, down: int, groups: int) -> list[int]:
    """Refuse arguments that fit none of the ways, even if the chosen way would ignore them."""
    refuse_non_tensor("conv2d_resample", "x", x)
    refuse_non_tensor("conv2d_resample", "w", w)
    numbers = []
    for name, number in (("up", up), ("down", down), ("groups", groups)):
        if not is_index(number) or index(number) < 1:
            refuse("conv2d_resample", f"{name} to be a positive int", repr(number), ValueError)
        numbers.append(index(number))
    check_filter("conv2d_resample", "f", f, x)
    shapes = {"x": (x, "[N, C, H, W]"), "w": (w, "[out_channels, C / groups, height, width]")}
    for name, (tensor, shape) in shapes.items():
        if tensor.ndim != 4:
            wanted = f"{name} to have 4 dimensions {shape}"
            refuse("conv2d_resample", wanted, f"shape {list(tensor.shape)}")
    if w.dtype != x.dtype and not autocasts(x):  # autocast casts both
        refuse("conv2d_resample", f"w to have the dtype of x ({x.dtype})", w.dtype)
    return numbers


def _convolve(
    x: Tensor, w: Tensor, groups: int, flip_weight: bool, **options: int | list
) -> Tensor:
    return conv2d(x, w if flip_weight else w.flip(2, 3), groups=groups, **options)


def _unresampled(x: Tensor, w: Tensor, sides: list[int], groups: int, flip_weight: bool) -> Tensor:
    """The convolution alone. It pads the image itself if both sides have equal padding."""
    x0, x1, y0, y1 = sides
    if x0 == x1 >= 0 and y0 == y1 >= 0:
        return _convolve(x, w, groups, flip_weight, padding=[y0, x0])
    return _convolve(upfirdn2d(x, None, padding=sides), w, groups, flip_weight)


def _convolve_upsampled(
    x: Tensor, w: Tensor, up: int, sides: list[int], groups: int, flip_weight: bool
) -> tuple[Tensor, list[int]]:
    """The convolution of the image with zeros between its samples, and what is left to pad.

    A transposed convolution computes every result to which a sample adds. The definition's results
    begin after the padding, less the extent of the weight, and go on for the zeros after the last
    sample. The convolution itself leaves out results that are cropped on both ends.
    """
    out_channels, in_channels, height, width = w.shape
    left = []
    for size, before, after in ((width, *sides[:2]), (height, *sides[2:])):
        left += [before - (size - 1), after - (size - 1) + up - 1]
    crops = [max(min(-left[2 * axis], -left[2 * axis + 1]), 0) for axis in (0, 1)]
    weight = w.reshape(groups, out_channels // groups, in_channels, height, width).transpose(1, 2)
    weight = weight.reshape(groups * in_channels, out_channels // groups, height, width)
    if flip_weight:
        weight = weight.flip(2, 3)
    y = conv_transpose2d(x, weight, stride=up, padding=crops[::-1], groups=groups)
    return y, [side + crops[place // 2] for place, side in enumerate(left)]
