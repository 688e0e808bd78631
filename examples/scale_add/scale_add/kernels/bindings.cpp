// The Python module, and the operator's registration with torch.
#include "core/host/module.h"
#include "scale_add_ops.h"

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  lltm_jit::Module module(m, "scale_add");
  module.add<ops::scale_add>();
}
