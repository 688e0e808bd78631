"""The function of ``torch_utils.ops.conv2d_resample``, under its name there."""

from lltm_jit.ops.stylegan.conv2d_resample import conv2d_resample

__all__ = ["conv2d_resample"]
