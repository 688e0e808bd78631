// Activation functions and their derivatives, for CUDA threads, CPU scalars and SIMD vectors.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

// Note [Sigmoid without overflow]
// exp(-x) overflows for large negative x. With e = exp(-|x|), which is at most 1, sigmoid(x) is
// 1 / (1 + e) for x > 0 and e / (1 + e) otherwise; the second form also keeps the tiny values that
// 1 / (1 + exp(-x)) rounds to zero.
template <typename T>
LLTM_JIT_HOST_DEVICE T sigmoid(T x) {
  const T one(1);
  const T e = Math<T>::exp(T(0) - Math<T>::abs(x));
  return Math<T>::where_positive(x, one, e) / (one + e);
}

// d sigmoid(x) / dx, from s = sigmoid(x).
template <typename T>
LLTM_JIT_HOST_DEVICE T sigmoid_derivative(T s) {
  return (T(1) - s) * s;
}

// d tanh(x) / dx, from t = tanh(x).
template <typename T>
LLTM_JIT_HOST_DEVICE T tanh_derivative(T t) {
  return T(1) - t * t;
}

// ELU with alpha = 1.
template <typename T>
LLTM_JIT_HOST_DEVICE T elu(T x) {
  return Math<T>::where_positive(x, x, Math<T>::expm1(x));
}

// d elu(x) / dx, from y = elu(x): y has the sign of x, and exp(x) = y + 1 where x <= 0. The product
// of exp(x) and a mask would be inf * 0 = NaN for large x.
template <typename T>
LLTM_JIT_HOST_DEVICE T elu_derivative(T y) {
  return Math<T>::where_positive(y, T(1), y + T(1));
}

// log(1 + exp(x)), whose derivative is sigmoid(x).
template <typename T>
LLTM_JIT_HOST_DEVICE T softplus(const T& x) {
  const T positive = Math<T>::where_positive(x, x, T(0));
  return positive + Math<T>::log1p(Math<T>::exp(T(0) - Math<T>::abs(x)));
}

}  // namespace lltm_jit
