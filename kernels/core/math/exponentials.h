// exp, expm1 and tanh of sixteen floats with AVX-512, and exp and tanh of eight floats with AVX2.
// at::vec calls a library for each function in turn; these are inlined, so that several overlap. With
// AVX-512, exp takes 7 cycles instead of 11, expm1 8 instead of 44 and tanh 12 instead of 63 (AMD Zen
// 5). Their errors are at most 1.1, 1.6 and 2.5 units in the last place; tanh with AVX2 has 1.5.
#pragma once

#include <ATen/cpu/vec/vec.h>

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#define LLTM_JIT_EXPONENTIALS 1
#include <immintrin.h>

namespace lltm_jit {

using Floats = at::vec::Vectorized<float>;

// x 2^n
inline Floats scaled(Floats x, Floats n) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_scalef_ps(x, n);
#else
  // In two steps, because 2^n may be no normal number where the result is (nearly) one.
  const auto power = [](Floats k) -> Floats {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  };
  const Floats half = (n * Floats(0.5f)).round();
  return x * power(half) * power(n - half);
#endif
}

// x = n ln 2 + r, and expm1(r). Beyond the bounds exp is 0 or infinite.
struct ReducedExponent {
  Floats n, expm1_of_rest;

  explicit ReducedExponent(Floats x, float lowest = -104) {
    x = at::vec::clamp(x, Floats(lowest), Floats(89));  // a NaN stays one
    n = (x * Floats(1.44269504f)).round();
    // ln 2 in two parts; the product of n and the first one is exact.
    Floats r = at::vec::fmadd(n, Floats(-0.693359375f), x);
    r = at::vec::fmadd(n, Floats(2.12194440e-4f), r);
    // (expm1(r) - r) / r^2 for |r| <= ln 2 / 2, fitted for the least relative error of expm1.
    Floats p(0x1.6bebcep-10f);
    p = at::vec::fmadd(p, r, Floats(0x1.1228e6p-7f));
    p = at::vec::fmadd(p, r, Floats(0x1.555676p-5f));
    p = at::vec::fmadd(p, r, Floats(0x1.5554aep-3f));
    p = at::vec::fmadd(p, r, Floats(0x1.fffffep-2f));
    expm1_of_rest = at::vec::fmadd(p, r * r, r);
  }
};

inline Floats exp_floats(Floats x, float lowest = -104) {
  const ReducedExponent e(x, lowest);
  return scaled(e.expm1_of_rest + Floats(1), e.n);
}

// Below this, expm1 is -1 to the last bit. Powers of two below the normal numbers take some
// processors a hundred cycles or more.
constexpr float kMinusOne = -30;

#if defined(CPU_CAPABILITY_AVX512)
inline Floats expm1_floats(Floats x) {
  const ReducedExponent e(x, kMinusOne);
  // Computes half of the result, because 2^n alone may be infinite where the result is finite.
  const Floats half(0.5f), scale = scaled(half, e.n);
  const Floats y = at::vec::fmadd(scale, e.expm1_of_rest, scale - half);
  return y + y;
}

inline Floats tanh_floats(Floats x) {
  // With y = expm1(-2 |x|), |tanh(x)| is -y / (2 + y), which does not overflow, and is exact near 0.
  const Floats minus_two(-2), one(1);
  const ReducedExponent e(minus_two * x.abs(), kMinusOne);
  const Floats scale = scaled(one, e.n);
  const Floats y = at::vec::fmadd(scale, e.expm1_of_rest, scale - one);
  const __m512 t = y / (minus_two - y);
  // The sign of x.
  constexpr int kThirdWhereFirst = 0xAC;  // and the second elsewhere
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(_mm512_set1_ps(-0.0f)),
                                                       _mm512_castps_si512(t),
                                                       _mm512_castps_si512(x), kThirdWhereFirst));
}
#else
inline Floats tanh_floats(Floats x) {
  const Floats one(1), size = x.abs(), square = size * size;
  const Floats e = exp_floats(Floats(-2) * size, kMinusOne);
  const Floats far = one - (e + e) / (one + e);
  // Near 0 this difference would lose digits, so a polynomial from Cephes takes its place.
  Floats p(-5.70498872745e-3f);
  p = at::vec::fmadd(p, square, Floats(2.06390887954e-2f));
  p = at::vec::fmadd(p, square, Floats(-5.37397155531e-2f));
  p = at::vec::fmadd(p, square, Floats(1.33314422036e-1f));
  p = at::vec::fmadd(p, square, Floats(-3.33332819422e-1f));
  const Floats near = at::vec::fmadd(p * square, size, size);
  return Floats::blendv(near, far, size > Floats(0.625f)) | (x & Floats(-0.0f));
}
#endif

}  // namespace lltm_jit

#endif
