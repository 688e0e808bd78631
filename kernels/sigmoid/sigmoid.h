// sigmoid: s = 1 / (1 + exp(-x)) elementwise; ds/dx = (1 - s) s, from the saved s.
//
// Contract between the host code (sigmoid.cpp) and the kernels: see ElementwiseArgs.
#pragma once

#include "core/activations.h"
#include "core/elementwise.h"

namespace lltm_jit {

struct Sigmoid {
  static constexpr int kInputs = 1;   // x
  static constexpr int kOutputs = 1;  // s
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = sigmoid(in[0]);
  }
};

struct SigmoidGradient {
  static constexpr int kInputs = 2;   // grad_s, s
  static constexpr int kOutputs = 1;  // grad_x
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = in[0] * sigmoid_derivative(in[1]);
  }
};

void sigmoid_forward_cpu(const ElementwiseArgs<Sigmoid>& args);
void sigmoid_backward_cpu(const ElementwiseArgs<SigmoidGradient>& args);

#ifdef LLTM_JIT_CUDA
// Enqueue on `stream`; numel is positive.
cudaError_t launch_sigmoid_forward(const ElementwiseArgs<Sigmoid>& args, cudaStream_t stream);
cudaError_t launch_sigmoid_backward(const ElementwiseArgs<SigmoidGradient>& args,
                                    cudaStream_t stream);
#endif

}  // namespace lltm_jit
