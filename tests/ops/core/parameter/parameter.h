#pragma once

#include "core/elementwise/maths.h"

namespace lltm_jit {

// An elementwise operator with a parameter.
struct LeakyRelu {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 1;   // x
  static constexpr int kOutputs = 1;  // y
  double slope;

  template <typename T>
  LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) const {
    out[0] = Math<T>::where_positive(in[0], in[0], T(slope) * in[0]);
  }
};

}  // namespace lltm_jit
