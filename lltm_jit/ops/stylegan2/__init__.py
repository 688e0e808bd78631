"""The operators of the PyTorch port of StyleGAN2, under the names of its package ``op``."""

from lltm_jit.ops import conv2d_gradfix
from lltm_jit.ops.stylegan2.fused_act import FusedLeakyReLU, fused_bias_act, fused_leaky_relu
from lltm_jit.ops.stylegan2.upfirdn2d import upfirdn2d

__all__ = ["FusedLeakyReLU", "conv2d_gradfix", "fused_bias_act", "fused_leaky_relu", "upfirdn2d"]
