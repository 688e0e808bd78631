// One lane of a CPU's vectors: a float or double whose functions are branch-free arithmetic, so
// that the compiler vectorises a loop over elements; a library function would be called for each
// element. The error is two or three roundings.
#pragma once

#include <c10/util/bit_cast.h>

#include <limits>

#include "core/math/activations.h"

namespace lltm_jit {

template <typename T>
struct Lane {
  T value;
  Lane() = default;
  template <typename Number>
  explicit Lane(Number x) : value(static_cast<T>(x)) {}
};
template <typename T>
inline Lane<T> operator+(Lane<T> a, Lane<T> b) {
  return Lane<T>(a.value + b.value);
}
template <typename T>
inline Lane<T> operator-(Lane<T> a, Lane<T> b) {
  return Lane<T>(a.value - b.value);
}
template <typename T>
inline Lane<T> operator*(Lane<T> a, Lane<T> b) {
  return Lane<T>(a.value * b.value);
}
template <typename T>
inline Lane<T> operator/(Lane<T> a, Lane<T> b) {
  return Lane<T>(a.value / b.value);
}

// The constants that differ between the types.
template <typename T>
struct LaneNumbers;
template <>
struct LaneNumbers<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kExpTerms = 7, kLogTerms = 7;
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLn2Upper = 0.693359375f, kLn2Lower = -2.12194440e-4f;
  static constexpr float kLeast = -88.1f, kSaturated = 10.0f;
};
template <>
struct LaneNumbers<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023, kExpTerms = 14, kLogTerms = 17;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLn2Upper = 6.93147180369123816490e-01;
  static constexpr double kLn2Lower = 1.90821492927058770002e-10;
  static constexpr double kLeast = -709.1, kSaturated = 22.0;
};

template <typename scalar_t>
struct Math<Lane<scalar_t>> {
  using T = Lane<scalar_t>;
  using Numbers = LaneNumbers<scalar_t>;

  static constexpr scalar_t inverse_factorial(int n) {
    double product = 1;
    for (int k = 2; k <= n; ++k) product *= k;
    return static_cast<scalar_t>(1 / product);
  }

  // exp(x) = `power` + `power` * `rest`. `power` is a power of two, or 0 below kLeast.
  struct Exp {
    scalar_t power, rest;
    explicit Exp(scalar_t argument) {
      using Bits = typename Numbers::Bits;
      const scalar_t x = argument < Numbers::kLeast ? Numbers::kLeast : argument;
      const scalar_t shifted = x * scalar_t(1.4426950408889634) + Numbers::kRound;
      const scalar_t n = shifted - Numbers::kRound;
      const scalar_t r = (x - n * Numbers::kLn2Upper) - n * Numbers::kLn2Lower;
      scalar_t sum = inverse_factorial(Numbers::kExpTerms);
#pragma GCC unroll 20
      for (int k = Numbers::kExpTerms - 1; k > 0; --k) sum = sum * r + inverse_factorial(k);
      rest = sum * r;
      const Bits exponent = c10::bit_cast<Bits>(shifted) + Numbers::kBias;
      power = c10::bit_cast<scalar_t>(exponent << Numbers::kMantissa);
    }
  };

  // For x up to about 87; below kLeast the result is 0.
  static T exp(T x) {
    const Exp e(x.value);
    return T(e.power + e.power * e.rest);
  }
  static T expm1(T x) {
    const Exp e(x.value);
    return T(e.power * e.rest + (e.power - 1));
  }
  // For x from 0 to 1: twice the inverse hyperbolic tangent of x / (2 + x), by its series.
  static T log1p(T x) {
    const scalar_t s = x.value / (2 + x.value), square = s * s;
    scalar_t sum = scalar_t(1) / (2 * Numbers::kLogTerms + 1);
#pragma GCC unroll 20
    for (int k = Numbers::kLogTerms; k > 0; --k) sum = sum * square + scalar_t(1) / (2 * k - 1);
    return T(2 * s * sum);
  }
  static T tanh(T x) {
    const scalar_t size = abs(x).value;
    const scalar_t e =
        expm1(T(2 * (size > Numbers::kSaturated ? Numbers::kSaturated : size))).value;
    return T(std::copysign(e / (e + 2), x.value));
  }
  static T abs(T x) { return T(std::abs(x.value)); }
  static T where_positive(T x, T a, T b) { return T(x.value > 0 ? a.value : b.value); }
  static T where_greater(T x, T y, T a, T b) { return T(x.value > y.value ? a.value : b.value); }
};

}  // namespace lltm_jit
