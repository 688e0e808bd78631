#include "channel_ops.h"
#include "core/channel_sum/cuda.cuh"
#include "core/elementwise/cuda.cuh"

namespace lltm_jit {
template cudaError_t launch_elementwise(const ElementwiseArgs<LeakyRelu>&, cudaStream_t);
template cudaError_t launch_channel_sum(const ChannelSumArgs&, cudaStream_t);
}  // namespace lltm_jit
