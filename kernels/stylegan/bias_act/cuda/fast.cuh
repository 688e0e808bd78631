// The CUDA kernels' float types, of two kinds, whose functions take few instructions.
//
// FullFloat, for 32-bit elements, is accurate to a few roundings. It has only what the activations
// need: quotients for divisors from 1 to 2, and log1p from 0 to 1.
//
// ShortFloat, for 16-bit elements, is accurate to about 14 bits, an eighth of a rounding of half,
// and does not handle denormal numbers. The unit that computes exp and quotients takes a quarter of
// a warp at a time, so an element at memory speed has time for two of them.
#pragma once

#include "core/launch/launch.cuh"
#include "core/math/extremes.cuh"
#include "core/math/float_of.cuh"
#include "core/types/half2.cuh"
#include "stylegan/bias_act/kernels.h"

namespace lltm_jit {

struct ShortFunctions;
struct FullFunctions;
using ShortFloat = FloatOf<ShortFunctions>;
using FullFloat = FloatOf<FullFunctions>;

template <>
struct Math<ShortFloat> : FloatMath<ShortFunctions> {
  static constexpr float kLog2E = 1.442695041f;

  static LLTM_JIT_DEVICE T quotient(T a, T b) { return T(a.value * approximate_inverse(b.value)); }
  static LLTM_JIT_DEVICE T exp(T x) { return T(approximate_power_of_2(kLog2E * x.value)); }
  // exp(x) - 1 and tanh(x), by series where the difference would lose bits.
  static LLTM_JIT_DEVICE T expm1(T x) {
    const float t = x.value;
    return T(fabsf(t) < 0.0125f ? fmaf(0.5f * t, t, t) : exp(x).value - 1);
  }
  // For x from 0 to 1: x times a polynomial, with a relative error of 2^-16.
  static LLTM_JIT_DEVICE T log1p(T x) {
    constexpr float kTerms[] = {-0.0238691513f, 0.101222284f,  -0.210048690f,
                                0.325206667f,   -0.499361366f, 0.999991596f};
    float sum = kTerms[0];
#pragma unroll
    for (int k = 1; k < 6; ++k) sum = fmaf(sum, x.value, kTerms[k]);
    return T(x.value * sum);
  }
  static LLTM_JIT_DEVICE T tanh(T x) {
    const float t = x.value, power = approximate_power_of_2(2 * kLog2E * t);
    return T(fabsf(t) < 0.0078f ? t : fmaf(-2.0f, approximate_inverse(1 + power), 1.0f));
  }
};

template <>
struct Math<FullFloat> : FloatMath<FullFunctions> {
  // For divisors from 1 to 2: an approximate quotient, and one step of Newton's method.
  static LLTM_JIT_DEVICE T quotient(T a, T b) {
    const float reciprocal = approximate_inverse(b.value), quotient = a.value * reciprocal;
    return T(fmaf(fmaf(-quotient, b.value, a.value), reciprocal, quotient));
  }
  static LLTM_JIT_DEVICE T exp(T x) { return T(expf(x.value)); }
  // 2^n (1 + r + r^2 / 2 + ...) - 1 with |r| at most log(2) / 2, for x up to about 87. Below the
  // least x, the power is 0. Adding kRound rounds to an integer.
  static LLTM_JIT_DEVICE T expm1(T x) {
    constexpr float kLeast = -88.1f, kRound = 12582912.0f;
    const float t = kLeast > x.value ? kLeast : x.value;
    const float shifted = fmaf(t, 1.442695041f, kRound), n = shifted - kRound;
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, t));
    float sum = 1 / 5040.f;
    constexpr float kTerms[] = {1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 1 / 2.f, 1.f};
    LLTM_JIT_UNROLLED(k, 6) sum = fmaf(sum, r, kTerms[k]);
    const float power = __uint_as_float((__float_as_uint(shifted) + 127) << 23);
    return T(fmaf(power, sum * r, power - 1));
  }
  static LLTM_JIT_DEVICE T tanh(T x) { return T(tanhf(x.value)); }
  // For x from 0 to 1: x times a polynomial, with a relative error of 2^-27.
  static LLTM_JIT_DEVICE T log1p(T x) {
    constexpr float kTerms[] = {0.00198669659f, -0.0131878266f, 0.0410065737f, -0.0818804092f,
                                0.123779959f,   -0.16087623f,   0.198858203f,  -0.249864965f,
                                0.333324975f,   -0.499999795f,  0.999999999f};
    float sum = kTerms[0];
#pragma unroll
    for (int k = 1; k < 11; ++k) sum = fmaf(sum, x.value, kTerms[k]);
    return T(x.value * sum);
  }
};

// Two 16-bit numbers at a time.
template <typename scalar_t>
LLTM_JIT_DEVICE uint32_t limited_pair(uint32_t pair, uint32_t least, uint32_t most) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(most));
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(least));
  } else {
    asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(most));
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(least));
  }
  return pair;
#else
  const auto limited = [&](float x) {
    return larger_or_nan(smaller_or_nan(x, first_of<scalar_t>(most)), first_of<scalar_t>(least));
  };
  return pack2<scalar_t>(limited(first_of<scalar_t>(pair)), limited(second_of<scalar_t>(pair)));
#endif
}

// Note [Clamped in pairs]
// The clamp is a value of the tensors' type, so a result may be rounded before it is clamped.
// limit_pack() clamps rounded 16-bit results, two at a time.
LLTM_JIT_DEVICE ShortFloat limited(ShortFloat y, ShortFloat) { return y; }
LLTM_JIT_DEVICE FullFloat limited(FullFloat y, FullFloat clamp) {
  return FullFloat(larger_or_nan(smaller_or_nan(y.value, clamp.value), -clamp.value));
}
template <typename scalar_t, int kCount, typename T>
LLTM_JIT_DEVICE void limit_pack(Pack<scalar_t, kCount>& pack, T clamp) {
  if constexpr (std::is_same_v<T, ShortFloat>) {
    const uint32_t one = from_opmath<scalar_t>(clamp.value).bits, most = one << 16 | one;
    auto* pairs = reinterpret_cast<uint32_t*>(pack.values);
    LLTM_JIT_UNROLLED(k, kCount / 2) {
      pairs[k] = limited_pair<scalar_t>(pairs[k], most | 0x80008000u, most);
    }
  }
}

// max(t, 0); a NaN counts as 0.
template <typename Functions>
LLTM_JIT_DEVICE FloatOf<Functions> positive_part(FloatOf<Functions> t) {
  return FloatOf<Functions>(fmaxf(t.value, 0.0f));
}

// exp(-x) may overflow to infinity here; its reciprocal is then 0.
LLTM_JIT_DEVICE ShortFloat sigmoid(ShortFloat x) {
  return ShortFloat(
      approximate_inverse(1 + approximate_power_of_2(-Math<ShortFloat>::kLog2E * x.value)));
}
// tanh without the series for small numbers: accurate enough to compare with a clamp.
LLTM_JIT_DEVICE ShortFloat tanh_of(ShortFloat, const Sigmoids<ShortFloat>& s) {
  return s.of - s.of_minus;
}

}  // namespace lltm_jit
