#include "channel_ops.h"
#include "core/cpu/channel_sum.h"
#include "core/cpu/elementwise.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<LeakyRelu>&);
template void channel_sum_cpu(const ChannelSumArgs&);
}  // namespace lltm_jit
