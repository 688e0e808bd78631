#include "channel_ops.h"
#include "core/channel_sum/cpu.h"
#include "core/elementwise/cpu.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<LeakyRelu>&);
template void channel_sum_cpu(const ChannelSumArgs&);
}  // namespace lltm_jit
