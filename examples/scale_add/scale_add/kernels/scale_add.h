// scale_add: z = scale * x + y, elementwise.
// See core/elementwise/maths.h.
#pragma once

#include "core/elementwise/maths.h"

struct ScaleAdd {
  static constexpr bool kIntegers = false;
  static constexpr int kInputs = 2;   // x, y
  static constexpr int kOutputs = 1;  // z
  double scale;

  template <typename T>
  LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) const {
    out[0] = T(scale) * in[0] + in[1];
  }
};
