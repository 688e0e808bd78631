// A float with maths functions of its own, in Math<FloatOf<Functions>>, instead of the language's.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

template <typename Functions>
struct FloatOf {
  float value;
  FloatOf() = default;
  LLTM_JIT_DEVICE explicit FloatOf(float x) : value(x) {}
  LLTM_JIT_DEVICE explicit operator float() const { return value; }

  friend LLTM_JIT_DEVICE FloatOf operator+(FloatOf a, FloatOf b) {
    return FloatOf(a.value + b.value);
  }
  friend LLTM_JIT_DEVICE FloatOf operator-(FloatOf a, FloatOf b) {
    return FloatOf(a.value - b.value);
  }
  friend LLTM_JIT_DEVICE FloatOf operator-(FloatOf a) { return FloatOf(-a.value); }
  friend LLTM_JIT_DEVICE FloatOf operator*(FloatOf a, FloatOf b) {
    return FloatOf(a.value * b.value);
  }
  friend LLTM_JIT_DEVICE FloatOf operator/(FloatOf a, FloatOf b) {
    return Math<FloatOf>::quotient(a, b);
  }
};

// The members that all of them share.
template <typename Functions>
struct FloatMath {
  using T = FloatOf<Functions>;
  static LLTM_JIT_DEVICE T quotient(T a, T b) { return T(__fdividef(a.value, b.value)); }
  static LLTM_JIT_DEVICE T log(T x) { return T(::logf(x.value)); }
  static LLTM_JIT_DEVICE T sqrt(T x) { return T(::sqrtf(x.value)); }
  static LLTM_JIT_DEVICE T sin(T x) { return T(::sinf(x.value)); }
  static LLTM_JIT_DEVICE T cos(T x) { return T(::cosf(x.value)); }
  static LLTM_JIT_DEVICE T abs(T x) { return T(fabsf(x.value)); }
  static LLTM_JIT_DEVICE T where_positive(T x, T a, T b) { return x.value > 0 ? a : b; }
  static LLTM_JIT_DEVICE T where_greater(T x, T y, T a, T b) { return x.value > y.value ? a : b; }
};

LLTM_JIT_DEVICE float approximate_power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
LLTM_JIT_DEVICE float approximate_inverse(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace lltm_jit
