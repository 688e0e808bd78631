// my_op: z = 3x - y elementwise; dz/dx = 3, dz/dy = -1.
// See core/elementwise/maths.h.
#pragma once

#include "core/elementwise/maths.h"

namespace lltm_jit {

struct MyOp {
  static constexpr bool kIntegers = true;
  static constexpr int kInputs = 2;   // x, y
  static constexpr int kOutputs = 1;  // z
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = T(3) * in[0] - in[1];
  }
};

struct MyOpGradient {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 1;   // grad_z
  static constexpr int kOutputs = 2;  // grad_x, grad_y
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = T(3) * in[0];
    out[1] = T(0) - in[0];
  }
};

}  // namespace lltm_jit
