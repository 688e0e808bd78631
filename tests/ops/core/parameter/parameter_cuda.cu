#include "core/elementwise/cuda.cuh"
#include "parameter.h"

namespace lltm_jit {
template cudaError_t launch_elementwise(const ElementwiseArgs<LeakyRelu>&, cudaStream_t);
}  // namespace lltm_jit
