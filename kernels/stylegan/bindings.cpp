// The extension module of the StyleGAN operators: an include and a line for each.
#include "core/host/module.h"
#include "core/host/variant_python.h"
#include "stylegan/bias_act/bias_act_ops.h"
#include "stylegan/upfirdn2d/upfirdn2d_ops.h"
#include "stylegan/filtered_lrelu/filtered_lrelu_ops.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit::ops;
  lltm_jit::Module module(m, "lltm_jit");
  module.add<bias_act, bias_act_backward, bias_act_second>();
  module.add<fused_bias_act>();
  module.add<lltm_jit::ops::upfirdn2d>();
  module.add<filtered_lrelu, filtered_lrelu_forward, filtered_lrelu_linear>();
}
