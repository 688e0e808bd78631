#include "core/elementwise_cuda.cuh"
#include "sigmoid/sigmoid.h"

namespace lltm_jit {

cudaError_t launch_sigmoid_forward(const ElementwiseArgs<Sigmoid>& args, cudaStream_t stream) {
  return launch_elementwise_floating(args, stream);
}

cudaError_t launch_sigmoid_backward(const ElementwiseArgs<SigmoidGradient>& args,
                                    cudaStream_t stream) {
  return launch_elementwise_floating(args, stream);
}

}  // namespace lltm_jit
