"""``filtered_lrelu`` under the name of StyleGAN3's ``torch_utils.ops.filtered_lrelu``."""

from lltm_jit.ops.stylegan.filtered_lrelu import filtered_lrelu

__all__ = ["filtered_lrelu"]
