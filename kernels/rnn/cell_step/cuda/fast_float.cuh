// A float whose functions take a handful of instructions and are accurate to about 20 bits: enough for
// results that are rounded to 11 bits (half) or 8 bits (bfloat16), or computed from such operands.
#pragma once

#include "core/math/float_of.cuh"

namespace lltm_jit {

struct FastFunctions;
using FastFloat = FloatOf<FastFunctions>;

template <>
struct Math<FastFloat> : FloatMath<FastFunctions> {
  // Below this, exp(x) - 1 and similar differences lose bits that the series keep.
  static constexpr float kSmall = 0.25f;

  static LLTM_JIT_DEVICE FastFloat exp(FastFloat x) { return FastFloat(__expf(x.value)); }
  static LLTM_JIT_DEVICE FastFloat expm1(FastFloat x) {
    const float t = x.value;
    const float series = t * (1 + t * (1 / 2.f + t * (1 / 6.f + t * (1 / 24.f + t * (1 / 120.f)))));
    return FastFloat(fabsf(t) < kSmall ? series : __expf(t) - 1);
  }
  static LLTM_JIT_DEVICE FastFloat tanh(FastFloat x) {
    const float t = fabsf(x.value), square = t * t;
    const float series =
        t * (1 + square * (-1 / 3.f + square * (2 / 15.f + square * (-17 / 315.f))));
    const float value = t < kSmall ? series : 1 - __fdividef(2, 1 + __expf(2 * t));
    return FastFloat(copysignf(value, x.value));
  }
};

}  // namespace lltm_jit
