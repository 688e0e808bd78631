// The functions that a cell may call, for each type of number.
#pragma once

#include <type_traits>

#include "core/math/activations.h"

namespace lltm_jit {

template <typename T>
LLTM_JIT_HOST_DEVICE T exp(const T& x) {
  return Math<T>::exp(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T log(const T& x) {
  return Math<T>::log(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T log1p(const T& x) {
  return Math<T>::log1p(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T sqrt(const T& x) {
  return Math<T>::sqrt(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T sin(const T& x) {
  return Math<T>::sin(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T cos(const T& x) {
  return Math<T>::cos(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T tanh(const T& x) {
  return Math<T>::tanh(x);
}
template <typename T>
LLTM_JIT_HOST_DEVICE T abs(const T& x) {
  return Math<T>::abs(x);
}
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
