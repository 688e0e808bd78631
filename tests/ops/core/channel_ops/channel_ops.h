// Operators that prove core's elementwise loops and channel sums.
#pragma once

#include "core/math/channel_sum.h"
#include "core/math/elementwise.h"

namespace lltm_jit {

// A parameter; and one with a bias a channel.
struct LeakyRelu {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 1;   // x
  static constexpr int kOutputs = 1;  // y
  double slope;

  template <typename T>
  LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) const {
    out[0] = Math<T>::where_positive(in[0], in[0], T(slope) * in[0]);
  }
  template <typename T>
  LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], const T& bias, T (&out)[kOutputs]) const {
    const T x[] = {in[0] + bias};
    apply(x, out);
  }
};

}  // namespace lltm_jit
