// sigmoid: s = 1 / (1 + exp(-x)) elementwise; ds/dx = (1 - s) s, from the saved s.
#pragma once

#include "core/elementwise/maths.h"
#include "core/math/activations.h"

namespace lltm_jit {

struct Sigmoid {
  static constexpr const char* kNames[] = {"x"};
  static constexpr bool kIntegers = false;
  static constexpr Saves kSaves = Saves::Result;
  static constexpr int kInputs = 1, kOutputs = 1;

  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = sigmoid(in[0]);
  }

  struct Gradient {
    static constexpr const char* kNames[] = {"grad", "s"};
    static constexpr bool kIntegers = false;
    static constexpr int kInputs = 2, kOutputs = 1;

    template <typename T>
    static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
      out[0] = in[0] * sigmoid_derivative(in[1]);
    }
  };
};

}  // namespace lltm_jit
