"""``upfirdn2d`` as the PyTorch port of StyleGAN2 calls it: another function of that name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from lltm_jit.ops._library import refuse_non_tensor
from lltm_jit.ops.stylegan import upfirdn2d as _resample


def upfirdn2d(
    input: Tensor,
    kernel: Tensor,
    up: int = 1,
    down: int = 1,
    pad: Sequence[int] | int = (0, 0),
    *raw: int,
) -> Tensor:
    """Upsample with zeros, pad, filter and downsample a batch of images.

    Also takes the positional arguments of the port's compiled operator: ``upfirdn2d(input, kernel,
    up_x, up_y, down_x, down_y, pad_x0, pad_x1, pad_y0, pad_y1)``.

    Args:
        input: (N, C, H, W); half, bfloat16, float or double.
        kernel: (taps_y, taps_x), of a convolution: it is turned round. On the device of ``input``.
        up: how many samples become of one, on both axes.
        down: of how many samples one is kept, on both axes.
        pad: (before, after) on both axes, or (x0, x1, y0, y1).

    Returns:
        (N, C, H', W'); see :func:`lltm_jit.ops.stylegan.upfirdn2d.upfirdn2d`, of which it is a
        call.

    Raises:
        RuntimeError: as that function, or if ``kernel`` is not 2-D.
        ValueError: if ``pad`` has neither two nor four numbers.
        TypeError: if an argument is no tensor, or the positional arguments are neither of the two
            lists.
    """
    refuse_non_tensor("upfirdn2d", "input", input)
    refuse_non_tensor("upfirdn2d", "kernel", kernel)
    if kernel.ndim != 2:
        raise RuntimeError(
            "upfirdn2d(): expected kernel to have 2 dimensions [taps_y, taps_x], "
            f"but got shape {list(kernel.shape)}"
        )
    if raw:
        if len(raw) != 5:
            raise TypeError(f"upfirdn2d(): expected 2 to 5 or 10 arguments, but got {5 + len(raw)}")
        down_x, down_y, *sides = cast(Sequence[int], (pad, *raw))
        return _resample.upfirdn2d(input, kernel, (up, down), (down_x, down_y), sides)
    if not isinstance(pad, Sequence) or len(pad) not in (2, 4):
        message = (
            f"upfirdn2d(): expected pad to be (before, after) or (x0, x1, y0, y1), but got {pad!r}"
        )
        raise ValueError(message)
    return _resample.upfirdn2d(input, kernel, up, down, (*pad, *pad) if len(pad) == 2 else pad)
