// The extension module of the StyleGAN operators: an include and a line for each.
#include "core/host/module.h"
#include "stylegan/bias_act/operators.h"
#include "stylegan/filtered_lrelu/operators.h"
#include "stylegan/upfirdn2d/operators.h"

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit;
  Module module(m, "lltm_jit", python::Tensors::Plain);
  module.add<ops::bias_act, ops::bias_act_backward>();
  module.add<ops::fused_bias_act>();
  module.add<ops::upfirdn2d>();
  module.add_function<resample2d>("resample2d");
  module.add<ops::filtered_lrelu, ops::filtered_lrelu_forward, ops::filtered_lrelu_linear>();
}
