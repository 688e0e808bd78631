// The functions that a cell may call, for each type of number.
#pragma once

#include <type_traits>

#include "core/math/activations.h"

namespace lltm_jit {

#define LLTM_JIT_FUNCTION(name)             \
  template <typename T>                     \
  LLTM_JIT_HOST_DEVICE T name(const T& x) { \
    return Math<T>::name(x);                \
  }
LLTM_JIT_FUNCTION(exp)
LLTM_JIT_FUNCTION(log)
LLTM_JIT_FUNCTION(log1p)
LLTM_JIT_FUNCTION(sqrt)
LLTM_JIT_FUNCTION(sin)
LLTM_JIT_FUNCTION(cos)
LLTM_JIT_FUNCTION(tanh)
LLTM_JIT_FUNCTION(abs)
#undef LLTM_JIT_FUNCTION

// As in torch: relu of NaN is NaN, and the derivative at 0 is 0.
template <typename T>
LLTM_JIT_HOST_DEVICE T relu(const T& x) {
  return Math<T>::where_positive(x, x, Math<T>::where_positive(T(0) - x, T(0), x - x));
}
// x > y ? a : b.
template <typename T>
LLTM_JIT_HOST_DEVICE T where_greater(const T& x, const T& y, const T& a, const T& b) {
  return Math<T>::where_greater(x, y, a, b);
}

#if defined(__CUDACC__)
using ::max;  // of integers, which the names below would hide
using ::min;
#endif
// As torch.maximum and minimum: NaN if either is, and each has half of the derivative where they are equal.
template <typename T>
LLTM_JIT_HOST_DEVICE T max(const T& x, const T& y) {
  static_assert(!std::is_integral_v<T>);
  const T otherwise = T(0.5) * x + T(0.5) * y;
  return where_greater(x, y, x, where_greater(y, x, y, otherwise));
}
template <typename T>
LLTM_JIT_HOST_DEVICE T min(const T& x, const T& y) {
  static_assert(!std::is_integral_v<T>);
  const T otherwise = T(0.5) * x + T(0.5) * y;
  return where_greater(x, y, y, where_greater(y, x, x, otherwise));
}

}  // namespace lltm_jit
