// The extension module of the recurrent operators: an include and a line for each.
#include "core/host/module.h"
#include "rnn/lltm/lltm_ops.h"

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit::ops;
  lltm_jit::Module module(m, "lltm_jit");
  module.add<lltm_cell, lltm_cell_forward, lltm_cell_backward>();
  module.add<lltm_cell_aten>();
  module.add<lltm_cell_check>();
  module.add<lltm_forward>();
  module.add<lltm_backward>();
}
