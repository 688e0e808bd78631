"""The operators of StyleGAN2 and StyleGAN3.

Source of the maths: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2020)
and "Alias-Free Generative Adversarial Networks" (2021). Importing this package loads the kernels of
this family, or starts building them.
"""

from lltm_jit import native
from lltm_jit.ops.stylegan import bias_act as _bias_act  # noqa: F401
from lltm_jit.ops.stylegan import filtered_lrelu as _filtered_lrelu  # noqa: F401
from lltm_jit.ops.stylegan import stylegan2 as _stylegan2  # noqa: F401
from lltm_jit.ops.stylegan import upfirdn2d as _upfirdn2d  # noqa: F401
from lltm_jit.ops.stylegan._implementation import implementation

__all__ = ["implementation"]

native.start("stylegan")
