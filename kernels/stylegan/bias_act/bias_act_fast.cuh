// A float whose functions are right to some 18 bits and take a few instructions, without the cases of
// denormal numbers: for elements of 16 bits. The unit that makes exp, log and quotients takes a quarter
// of a warp at a time, so that an element at memory speed has time for two of them.
#pragma once

#include "core/math/activations.h"

namespace lltm_jit {

struct ShortFloat {
  float value;
  ShortFloat() = default;
  __device__ __forceinline__ explicit ShortFloat(float x) : value(x) {}
  __device__ __forceinline__ explicit ShortFloat(double x) : value(static_cast<float>(x)) {}
  __device__ __forceinline__ explicit ShortFloat(int x) : value(static_cast<float>(x)) {}
};
__device__ __forceinline__ ShortFloat operator+(ShortFloat a, ShortFloat b) {
  return ShortFloat(a.value + b.value);
}
__device__ __forceinline__ ShortFloat operator-(ShortFloat a, ShortFloat b) {
  return ShortFloat(a.value - b.value);
}
__device__ __forceinline__ ShortFloat operator*(ShortFloat a, ShortFloat b) {
  return ShortFloat(a.value * b.value);
}

// 1 / x, 2^x, log2(x).
__device__ __forceinline__ float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <>
struct Math<ShortFloat> {
  using T = ShortFloat;
  static constexpr float kLog2E = 1.442695041f, kLn2 = 0.6931471806f;

  static __device__ __forceinline__ T exp(T x) { return T(fast_exp2(kLog2E * x.value)); }
  // exp(x) - 1 and log(1 + x) by their series where the difference or the sum would lose bits.
  static __device__ __forceinline__ T expm1(T x) {
    const float t = x.value;
    const float series = t * (1 + t * (1 / 2.f + t * (1 / 6.f + t * (1 / 24.f))));
    return T(fabsf(t) < 0.2f ? series : exp(x).value - 1);
  }
  static __device__ __forceinline__ T log1p(T x) {
    const float t = x.value;
    const float series = t * (1 + t * (-1 / 2.f + t * (1 / 3.f)));
    return T(t < 0.03f ? series : kLn2 * fast_log2(1 + t));
  }
  // A quotient of polynomials, right to 2^-19 of the value up to 4.7, where a half is 1 already.
  static __device__ __forceinline__ T tanh(T x) {
    constexpr float kMost = 4.7f;
    const float inside = where_greater(x, T(kMost), T(kMost), x).value;
    const float t = -kMost > inside ? -kMost : inside, square = t * t;
    const float top = 0.99999871f + square * (0.1171114f + square * 0.00167328f);
    const float bottom =
        1 + square * (0.450433939f + square * (0.0184998251f + square * 6.70256438e-05f));
    return T(t * top * fast_reciprocal(bottom));
  }
  static __device__ __forceinline__ T abs(T x) { return T(fabsf(x.value)); }
  static __device__ __forceinline__ T where_positive(T x, T a, T b) { return x.value > 0 ? a : b; }
  static __device__ __forceinline__ T where_greater(T x, T y, T a, T b) {
    return x.value > y.value ? a : b;
  }
};

// exp(-x) may overflow to infinity here, whose reciprocal is 0.
__device__ __forceinline__ ShortFloat sigmoid(ShortFloat x) {
  return ShortFloat(fast_reciprocal(1 + fast_exp2(-Math<ShortFloat>::kLog2E * x.value)));
}

}  // namespace lltm_jit
