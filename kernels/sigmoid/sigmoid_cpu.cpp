#include "core/elementwise_cpu.h"
#include "sigmoid/sigmoid.h"

namespace lltm_jit {

void sigmoid_forward_cpu(const ElementwiseArgs<Sigmoid>& args) { elementwise_floating_cpu(args); }

void sigmoid_backward_cpu(const ElementwiseArgs<SigmoidGradient>& args) {
  elementwise_floating_cpu(args);
}

}  // namespace lltm_jit
