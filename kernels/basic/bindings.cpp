// The extension module of the elementwise operators, which basic/operators.h lists.
#include "basic/operators.h"
#include "core/elementwise/declare.h"
#include "core/host/module.h"

#define ADD(name, Op, inputs, saved) module.add<ops::name, ops::name##_backward>();
#define ADD_DERIVATIVE(name, Op, inputs, saved) module.add<ops::d_##name>();

namespace lltm_jit {
LLTM_JIT_OPERATORS(LLTM_JIT_DECLARE_ELEMENTWISE)
LLTM_JIT_DERIVATIVES(LLTM_JIT_DECLARE_DERIVATIVE)
}  // namespace lltm_jit

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit;
  Module module(m, "lltm_jit");
  LLTM_JIT_OPERATORS(ADD)
  LLTM_JIT_DERIVATIVES(ADD_DERIVATIVE)
}
