// Dual numbers: a value and its derivatives with respect to kPartials variables, computed together by
// the same expressions (forward-mode automatic differentiation).
//
// Note [Partials that are known to be zero]
// `active` has a bit for each variable that the value depends on. Where functions are inlined and
// loops unrolled, the compiler knows the bits and computes no partial that is zero: a product of
// two numbers that depend on one variable each costs as much as one written by hand.
#pragma once

#include "core/math/activations.h"

namespace lltm_jit {

template <typename T, int kPartials>
struct Dual {
  T value;
  T partials[kPartials];  // only active ones are read
  uint32_t active;
  static_assert(kPartials <= 32);

  Dual() = default;
  // A constant.
  template <typename Number>
  LLTM_JIT_HOST_DEVICE explicit Dual(Number number) : value(number), active(0) {}
  // The variable of this index.
  static LLTM_JIT_HOST_DEVICE Dual variable(T value, int index) {
    Dual result(value);
    result.partials[index] = T(1);
    result.active = 1u << index;
    return result;
  }

  LLTM_JIT_HOST_DEVICE bool depends_on(int index) const { return active >> index & 1; }
};

// The dual numbers for a function of kVariables variables.
template <typename T, int kVariables>
struct DualFor {
  using type = Dual<T, kVariables>;
};

// x > y ? a : b, whose derivative is the chosen number's.
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> choose(const T& x, const T& y, const Dual<T, kPartials>& a,
                                               const Dual<T, kPartials>& b) {
  Dual<T, kPartials> result(Math<T>::where_greater(x, y, a.value, b.value));
  result.active = a.active | b.active;
  LLTM_JIT_UNROLLED(k, kPartials) {
    if (!result.depends_on(k)) continue;
    result.partials[k] = Math<T>::where_greater(x, y, a.depends_on(k) ? a.partials[k] : T(0),
                                                b.depends_on(k) ? b.partials[k] : T(0));
  }
  return result;
}

// f(a) with the derivative f'(a).
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> chain(const Dual<T, kPartials>& a, T value, T derivative) {
  Dual<T, kPartials> result(value);
  result.active = a.active;
  LLTM_JIT_UNROLLED(k, kPartials) {
    if (a.depends_on(k)) result.partials[k] = derivative * a.partials[k];
  }
  return result;
}

// f(a, b) with the derivatives with respect to a and to b.
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> chain(const Dual<T, kPartials>& a, T by_a,
                                              const Dual<T, kPartials>& b, T by_b, T value) {
  Dual<T, kPartials> result(value);
  result.active = a.active | b.active;
  LLTM_JIT_UNROLLED(k, kPartials) {
    if (a.depends_on(k) && b.depends_on(k)) {
      result.partials[k] = by_a * a.partials[k] + by_b * b.partials[k];
    } else if (a.depends_on(k)) {
      result.partials[k] = by_a * a.partials[k];
    } else if (b.depends_on(k)) {
      result.partials[k] = by_b * b.partials[k];
    }
  }
  return result;
}

template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> operator+(const Dual<T, kPartials>& a,
                                                  const Dual<T, kPartials>& b) {
  return chain(a, T(1), b, T(1), a.value + b.value);
}
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> operator-(const Dual<T, kPartials>& a,
                                                  const Dual<T, kPartials>& b) {
  return chain(a, T(1), b, T(-1), a.value - b.value);
}
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> operator*(const Dual<T, kPartials>& a,
                                                  const Dual<T, kPartials>& b) {
  return chain(a, b.value, b, a.value, a.value * b.value);
}
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> operator/(const Dual<T, kPartials>& a,
                                                  const Dual<T, kPartials>& b) {
  const T inverse = T(1) / b.value, quotient = a.value / b.value;
  return chain(a, inverse, b, T(0) - quotient * inverse, quotient);
}
template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> operator-(const Dual<T, kPartials>& a) {
  return chain(a, T(0) - a.value, T(-1));
}

template <typename T, int kPartials>
struct Math<Dual<T, kPartials>> {
  using Number = Dual<T, kPartials>;
  static LLTM_JIT_HOST_DEVICE Number exp(const Number& x) {
    const T y = Math<T>::exp(x.value);
    return chain(x, y, y);
  }
  static LLTM_JIT_HOST_DEVICE Number expm1(const Number& x) {
    const T y = Math<T>::expm1(x.value);
    return chain(x, y, y + T(1));
  }
  static LLTM_JIT_HOST_DEVICE Number log(const Number& x) {
    return chain(x, Math<T>::log(x.value), T(1) / x.value);
  }
  static LLTM_JIT_HOST_DEVICE Number log1p(const Number& x) {
    return chain(x, Math<T>::log1p(x.value), T(1) / (T(1) + x.value));
  }
  static LLTM_JIT_HOST_DEVICE Number sqrt(const Number& x) {
    const T y = Math<T>::sqrt(x.value);
    return chain(x, y, T(0.5) / y);
  }
  static LLTM_JIT_HOST_DEVICE Number sin(const Number& x) {
    return chain(x, Math<T>::sin(x.value), Math<T>::cos(x.value));
  }
  static LLTM_JIT_HOST_DEVICE Number cos(const Number& x) {
    return chain(x, Math<T>::cos(x.value), T(0) - Math<T>::sin(x.value));
  }
  static LLTM_JIT_HOST_DEVICE Number tanh(const Number& x) {
    const T y = Math<T>::tanh(x.value);
    return chain(x, y, tanh_derivative(y));
  }
  // As torch's: the derivative at 0 is 0.
  static LLTM_JIT_HOST_DEVICE Number abs(const Number& x) {
    const T otherwise = Math<T>::where_positive(T(0) - x.value, T(-1), x.value);
    return chain(x, Math<T>::abs(x.value), Math<T>::where_positive(x.value, T(1), otherwise));
  }
  static LLTM_JIT_HOST_DEVICE Number where_positive(const Number& x, const Number& a,
                                                    const Number& b) {
    return where_greater(x, Number(0), a, b);
  }
  static LLTM_JIT_HOST_DEVICE Number where_greater(const Number& x, const Number& y,
                                                   const Number& a, const Number& b) {
    return choose(x.value, y.value, a, b);
  }
};

template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> sigmoid(const Dual<T, kPartials>& x) {
  const T y = sigmoid(x.value);
  return chain(x, y, sigmoid_derivative(y));
}

template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> elu(const Dual<T, kPartials>& x) {
  const T y = elu(x.value);
  return chain(x, y, elu_derivative(y));
}

template <typename T, int kPartials>
LLTM_JIT_HOST_DEVICE Dual<T, kPartials> softplus(const Dual<T, kPartials>& x) {
  return chain(x, softplus(x.value), sigmoid(x.value));
}

}  // namespace lltm_jit
