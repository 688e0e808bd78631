"""The activation of the PyTorch port of StyleGAN2, under the name of its ``op.fused_act``."""

from lltm_jit.ops.stylegan.stylegan2 import FusedLeakyReLU, fused_bias_act, fused_leaky_relu

__all__ = ["FusedLeakyReLU", "fused_bias_act", "fused_leaky_relu"]
