#include "basic/my_op/my_op.h"
#include "core/elementwise/cpu.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<MyOp>&);
template void elementwise_cpu(const ElementwiseArgs<MyOpGradient>&);
}  // namespace lltm_jit
