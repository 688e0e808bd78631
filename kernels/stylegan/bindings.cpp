// The extension module of the StyleGAN operators: an include and a line for each.
#include "core/host/module.h"
#include "stylegan/upfirdn2d/upfirdn2d_ops.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  lltm_jit::Module module(m, "lltm_jit");
  module.add<lltm_jit::ops::upfirdn2d>();
}
