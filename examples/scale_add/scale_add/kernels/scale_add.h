// scale_add: z = scale * x + y, elementwise.
// See core/elementwise/maths.h.
#pragma once

#include "core/elementwise/maths.h"

struct ScaleAdd {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 3;   // x, y, scale
  static constexpr int kOutputs = 1;  // z
  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = in[2] * in[0] + in[1];
  }
};
