#include "core/elementwise/cpu.h"
#include "parameter.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<LeakyRelu>&);
}  // namespace lltm_jit
