// Element types and the arithmetic primitives that operators' maths is written in.
//
// Shared by C++ and CUDA: no torch header may be included here.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define LLTM_JIT_DEVICE __device__ __forceinline__
#define LLTM_JIT_HOST_DEVICE __host__ __device__ __forceinline__
#define LLTM_JIT_UNROLL _Pragma("unroll")
#else
#define LLTM_JIT_HOST_DEVICE inline
#define LLTM_JIT_UNROLL _Pragma("GCC unroll 32")
#endif

// Unrolled loops over the few items of arrays, so that the arrays live in registers: i from 0, or from `first`, to
// end - 1; and for each i the same for j.
#define LLTM_JIT_UNROLLED(i, end) LLTM_JIT_UNROLLED_FROM(i, 0, end)
#define LLTM_JIT_UNROLLED_FROM(i, first, end) LLTM_JIT_UNROLL for (int i = first; i < (end); ++i)
#define LLTM_JIT_UNROLLED2(i, end_of_i, j, end_of_j) \
  LLTM_JIT_UNROLLED(i, end_of_i) LLTM_JIT_UNROLL for (int j = 0; j < (end_of_j); ++j)

namespace lltm_jit {

// The element type behind a raw pointer. Integers differ by width alone: operators that take them
// compute modulo 2^width, which is the same for signed and unsigned.
enum class ElementType : int8_t { Half, BFloat16, Float, Double, Int8, Int16, Int32, Int64 };

// The type that arithmetic on `scalar_t` is done in: float for the 16-bit types (specialised
// where those types are known), the type itself otherwise.
template <typename scalar_t>
struct OpMath {
  using type = scalar_t;
};
template <typename scalar_t>
using opmath_t = typename OpMath<scalar_t>::type;

// How many pieces of `piece` cover `whole`.
template <typename Whole, typename Piece>
LLTM_JIT_HOST_DEVICE constexpr auto ceil_div(Whole whole, Piece piece) {
  return (whole + piece - 1) / piece;
}

// Primitives of the maths. `Math<T>` is specialised for SIMD vectors in core/types/vectorized.h, so one
// formula serves a CUDA thread, a CPU lane and a vector register.
template <typename T>
struct Math {
  static LLTM_JIT_HOST_DEVICE T exp(T x) { return std::exp(x); }
  static LLTM_JIT_HOST_DEVICE T expm1(T x) { return std::expm1(x); }
  static LLTM_JIT_HOST_DEVICE T log(T x) { return std::log(x); }
  static LLTM_JIT_HOST_DEVICE T log1p(T x) { return std::log1p(x); }
  static LLTM_JIT_HOST_DEVICE T sqrt(T x) { return std::sqrt(x); }
  static LLTM_JIT_HOST_DEVICE T sin(T x) { return std::sin(x); }
  static LLTM_JIT_HOST_DEVICE T cos(T x) { return std::cos(x); }
  static LLTM_JIT_HOST_DEVICE T tanh(T x) { return std::tanh(x); }
  static LLTM_JIT_HOST_DEVICE T abs(T x) { return std::fabs(x); }
  // x > 0 ? a : b; a NaN takes b.
  static LLTM_JIT_HOST_DEVICE T where_positive(T x, T a, T b) { return x > T(0) ? a : b; }
  // x > y ? a : b; a NaN takes b.
  static LLTM_JIT_HOST_DEVICE T where_greater(T x, T y, T a, T b) { return x > y ? a : b; }
};

}  // namespace lltm_jit
