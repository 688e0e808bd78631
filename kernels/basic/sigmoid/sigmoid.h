// sigmoid: s = 1 / (1 + exp(-x)) elementwise; ds/dx = (1 - s) s, from the saved s.
// See core/elementwise/maths.h.
#pragma once

#include "core/elementwise/maths.h"
#include "core/math/activations.h"

namespace lltm_jit {

struct Sigmoid {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 1;   // x
  static constexpr int kOutputs = 1;  // s
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = sigmoid(in[0]);
  }
};

struct SigmoidGradient {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 2;   // grad_s, s
  static constexpr int kOutputs = 1;  // grad_x
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = in[0] * sigmoid_derivative(in[1]);
  }
};

}  // namespace lltm_jit
