"""``upfirdn2d`` as the PyTorch port of StyleGAN2 calls it: another function of that name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from lltm_jit._library import refuse, refuse_non_tensor
from lltm_jit.ops.stylegan import upfirdn2d as _resample


def upfirdn2d(
    input: Tensor,
    kernel: Tensor,
    up: int = 1,
    down: int = 1,
    pad: Sequence[int] | int = (0, 0),
    *raw: int,
) -> Tensor:
    """Upsample a batch of images with zeros, pad, filter, and downsample it.

    It also accepts the positional arguments of the port's compiled operator: ``upfirdn2d(input,
    kernel, up_x, up_y, down_x, down_y, pad_x0, pad_x1, pad_y0, pad_y1)``.

    Args:
        input: (N, C, H, W) in half, bfloat16, float or double.
        kernel: (taps_y, taps_x), the filter to convolve with, on the device of ``input``.
        up, down: upsampling and downsampling factor on both axes.
        pad: zeros (before, after) on both axes, or (x0, x1, y0, y1).
        raw: the remaining arguments of the positional form.

    Returns:
        (N, C, H', W'); see :func:`lltm_jit.ops.stylegan.upfirdn2d.upfirdn2d`, which computes it.

    Raises:
        RuntimeError: as that function, or if ``kernel`` is not 2-D.
        ValueError: if ``pad`` does not have two or four numbers.
        TypeError: if an argument is not a tensor, or the number of positional arguments is wrong.

    Example:
        >>> stylegan2.upfirdn2d(torch.ones(1, 1, 4, 4), torch.ones(2, 2), up=2, pad=(1, 0)).shape
        torch.Size([1, 1, 8, 8])
    """
    refuse_non_tensor("upfirdn2d", "input", input)
    refuse_non_tensor("upfirdn2d", "kernel", kernel)
    if kernel.ndim != 2:
        wanted = "kernel to have 2 dimensions [taps_y, taps_x]"
        refuse("upfirdn2d", wanted, f"shape {list(kernel.shape)}")
    if raw:
        if len(raw) != 5:
            refuse("upfirdn2d", "2 to 5 or 10 arguments", 5 + len(raw), TypeError)
        down_x, down_y, *sides = cast(Sequence[int], (pad, *raw))
        return _resample.upfirdn2d(input, kernel, (up, down), (down_x, down_y), sides)
    if not isinstance(pad, Sequence) or len(pad) not in (2, 4):
        wanted = "pad to be (before, after) or (x0, x1, y0, y1)"
        refuse("upfirdn2d", wanted, repr(pad), ValueError)
    return _resample.upfirdn2d(input, kernel, up, down, (*pad, *pad) if len(pad) == 2 else pad)
