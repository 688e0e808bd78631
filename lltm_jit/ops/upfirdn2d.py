"""The resampling functions of ``torch_utils.ops.upfirdn2d``, under their names there."""

from lltm_jit.ops.stylegan.upfirdn2d import (
    downsample2d,
    filter2d,
    setup_filter,
    upfirdn2d,
    upsample2d,
)

__all__ = ["downsample2d", "filter2d", "setup_filter", "upfirdn2d", "upsample2d"]
