"""``bias_act`` under the name of StyleGAN's ``torch_utils.ops.bias_act``."""

from lltm_jit.ops.stylegan.bias_act import BiasAct, activation_funcs, bias_act

__all__ = ["BiasAct", "activation_funcs", "bias_act"]
