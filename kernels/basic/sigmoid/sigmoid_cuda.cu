#include "basic/sigmoid/sigmoid.h"
#include "core/elementwise/cuda.cuh"

namespace lltm_jit {
template cudaError_t launch_elementwise(const ElementwiseArgs<Sigmoid>&, cudaStream_t);
template cudaError_t launch_elementwise(const ElementwiseArgs<SigmoidGradient>&, cudaStream_t);
}  // namespace lltm_jit
