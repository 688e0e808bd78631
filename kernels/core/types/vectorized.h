// CPU side of the primitives: SIMD vectors of the arithmetic type, loaded from and stored to any
// floating-point element type.
#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <type_traits>

#include "core/math/exponentials.h"
#include "core/types/cpu.h"

namespace lltm_jit {

template <typename T>
struct Math<at::vec::Vectorized<T>> {
  using Vec = at::vec::Vectorized<T>;
  static Vec exp(const Vec& x) { return x.exp(); }
  static Vec expm1(const Vec& x) { return x.expm1(); }
  static Vec log(const Vec& x) { return x.log(); }
  static Vec log1p(const Vec& x) { return x.log1p(); }
  static Vec sqrt(const Vec& x) { return x.sqrt(); }
  static Vec sin(const Vec& x) { return x.sin(); }
  static Vec cos(const Vec& x) { return x.cos(); }
  static Vec tanh(const Vec& x) { return x.tanh(); }
  static Vec abs(const Vec& x) { return x.abs(); }
  static Vec where_positive(const Vec& x, const Vec& a, const Vec& b) {
    return Vec::blendv(b, a, x > Vec(T(0)));
  }
  static Vec where_greater(const Vec& x, const Vec& y, const Vec& a, const Vec& b) {
    return Vec::blendv(b, a, x > y);
  }
};

#ifdef LLTM_JIT_EXPONENTIALS
template <>
inline at::vec::Vectorized<float> Math<at::vec::Vectorized<float>>::exp(const Vec& x) {
  return exp_floats(x);
}
template <>
inline at::vec::Vectorized<float> Math<at::vec::Vectorized<float>>::tanh(const Vec& x) {
  return tanh_floats(x);
}
#endif
#if defined(CPU_CAPABILITY_AVX512)
template <>
inline at::vec::Vectorized<float> Math<at::vec::Vectorized<float>>::expm1(const Vec& x) {
  return expm1_floats(x);
}
#endif

// Reads the last elements of 16-bit rows one by one. It is out of line, because few are read so.
template <typename scalar_t>
C10_NOINLINE at::vec::Vectorized<float> load_tail(const scalar_t* source, int64_t count) {
  float lanes[at::vec::Vectorized<float>::size()] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = source[i];
  return at::vec::Vectorized<float>::loadu(lanes);
}

// Reads `count` elements (at most a vector's lanes) in their arithmetic type; the other lanes are
// zero.
template <typename scalar_t>
inline at::vec::Vectorized<opmath_t<scalar_t>> load(const scalar_t* source, int64_t count) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  if constexpr (std::is_same_v<scalar_t, opmath_t<scalar_t>>) {
    return count == Vec::size() ? Vec::loadu(source) : Vec::loadu(source, count);
  } else {
    if (count < Vec::size()) return load_tail(source, count);
    Vec result;
    at::vec::load_to_float<scalar_t>(source, result);
    return result;
  }
}

// Rounds the first `count` lanes to a 16-bit type.
template <typename scalar_t>
inline void store_rounded(scalar_t* target, const at::vec::Vectorized<float>& value,
                          int64_t count) {
#if defined(CPU_CAPABILITY_AVX512)
  // convert_from_float() rounds two vectors, which would take twice as long.
  __m256i rounded;
  if constexpr (std::is_same_v<scalar_t, c10::Half>) {
    rounded = at::vec::cvtfp32_fp16(value);
  } else {
    rounded = at::vec::cvtfp32_bf16(value);
  }
  if (count == at::vec::Vectorized<float>::size()) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), rounded);
  } else {
    _mm256_mask_storeu_epi16(target, (1u << count) - 1, rounded);
  }
#else
  at::vec::convert_from_float<scalar_t>(value, value).store(target, static_cast<int>(count));
#endif
}

// Writes the first `count` lanes, rounded to the element type.
template <typename scalar_t>
inline void store(scalar_t* target, const at::vec::Vectorized<opmath_t<scalar_t>>& value,
                  int64_t count) {
  if constexpr (std::is_same_v<scalar_t, opmath_t<scalar_t>>) {
    value.store(target, static_cast<int>(count));
  } else {
    store_rounded(target, value, count);
  }
}

// Copies elements, in an element type or its arithmetic type, and converts them to either.
template <typename in_t, typename out_t>
inline void convert(const in_t* source, int64_t count, out_t* target) {
  if constexpr (std::is_same_v<in_t, out_t>) {
    std::copy_n(source, count, target);
  } else {
    constexpr int64_t kLanes = at::vec::Vectorized<opmath_t<in_t>>::size();
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t n = std::min(kLanes, count - i);
      store(target + i, load(source + i, n), n);
    }
  }
}

}  // namespace lltm_jit
