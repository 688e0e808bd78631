// my_op: z = 3x - y elementwise; dz/dx = 3, dz/dy = -1.
#pragma once

#include "core/elementwise/maths.h"

namespace lltm_jit {

struct MyOp {
  static constexpr const char* kNames[] = {"x", "y"};
  static constexpr bool kIntegers = true;
  static constexpr Saves kSaves = Saves::Nothing;
  static constexpr int kInputs = 2, kOutputs = 1;

  template <typename T>
  static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
    out[0] = T(3) * in[0] - in[1];
  }

  struct Gradient {
    static constexpr const char* kNames[] = {"grad"};
    static constexpr bool kIntegers = false;
    static constexpr int kInputs = 1, kOutputs = 2;

    template <typename T>
    static LLTM_JIT_HOST_DEVICE void apply(const T (&in)[kInputs], T (&out)[kOutputs]) {
      out[0] = T(3) * in[0];
      out[1] = T(0) - in[0];
    }
  };
};

}  // namespace lltm_jit
