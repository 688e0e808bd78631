#define LLTM_JIT_MATHS
#include "basic/operators.h"
#include "core/elementwise/cuda.cuh"

#define INSTANTIATE(name, Op, inputs, saved)                                         \
  template cudaError_t launch_elementwise(const ElementwiseArgs<Op>&, cudaStream_t); \
  template cudaError_t launch_elementwise(const ElementwiseArgs<Op::Gradient>&, cudaStream_t);

namespace lltm_jit {
LLTM_JIT_OPERATORS(INSTANTIATE)
}  // namespace lltm_jit
