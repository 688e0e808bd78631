#include "basic/sigmoid/sigmoid.h"
#include "core/elementwise/cpu.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<Sigmoid>&);
template void elementwise_cpu(const ElementwiseArgs<SigmoidGradient>&);
}  // namespace lltm_jit
