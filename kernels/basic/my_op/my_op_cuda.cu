#include "basic/my_op/my_op.h"
#include "core/elementwise/cuda.cuh"

namespace lltm_jit {
template cudaError_t launch_elementwise(const ElementwiseArgs<MyOp>&, cudaStream_t);
template cudaError_t launch_elementwise(const ElementwiseArgs<MyOpGradient>&, cudaStream_t);
}  // namespace lltm_jit
