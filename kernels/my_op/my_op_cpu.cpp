#include "core/elementwise_cpu.h"
#include "my_op/my_op.h"

namespace lltm_jit {

void my_op_forward_cpu(const ElementwiseArgs<MyOp>& args) { elementwise_cpu(args); }

void my_op_backward_cpu(const ElementwiseArgs<MyOpGradient>& args) {
  elementwise_floating_cpu(args);
}

}  // namespace lltm_jit
