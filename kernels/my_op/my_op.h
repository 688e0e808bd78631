// my_op: z = 3x - y elementwise; dz/dx = 3, dz/dy = -1.
//
// Contract between the host code (my_op.cpp) and the kernels: see ElementwiseArgs.
#pragma once

#include "core/elementwise.h"

namespace lltm_jit {

struct MyOp {
  static constexpr int kInputs = 2;   // x, y
  static constexpr int kOutputs = 1;  // z
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = T(3) * in[0] - in[1];
  }
};

struct MyOpGradient {
  static constexpr int kInputs = 1;   // grad_z
  static constexpr int kOutputs = 2;  // grad_x, grad_y
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = T(3) * in[0];
    out[1] = T(0) - in[0];
  }
};

void my_op_forward_cpu(const ElementwiseArgs<MyOp>& args);
void my_op_backward_cpu(const ElementwiseArgs<MyOpGradient>& args);

#ifdef LLTM_JIT_CUDA
// Enqueue on `stream`; numel is positive.
cudaError_t launch_my_op_forward(const ElementwiseArgs<MyOp>& args, cudaStream_t stream);
cudaError_t launch_my_op_backward(const ElementwiseArgs<MyOpGradient>& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
