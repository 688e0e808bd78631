// The extension module of the elementwise operators: an include and a line for each.
#include "basic/my_op/my_op_ops.h"
#include "basic/sigmoid/sigmoid_ops.h"
#include "core/host/module.h"

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit::ops;
  lltm_jit::Module module(m, "lltm_jit");
  module.add<my_op, my_op_backward>();
  module.add<sigmoid, sigmoid_backward>();
  module.add<d_sigmoid>();
}
