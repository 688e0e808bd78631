// A tensor as the number type of an operator's maths. With it, the maths becomes a formula of
// differentiable operations of torch.
#pragma once

#include "core/host/formula.h"
#include "core/math/dual.h"

namespace lltm_jit {

// A tensor, or a constant if `tensor` is undefined. Functions that cells call often are not
// inlined: inlining would take the compiler longer and save nothing beside torch's calls.
struct TensorValue {
  at::Tensor tensor;
  double constant = 0;

  TensorValue() = default;
  explicit TensorValue(double number) : constant(number) {}
  TensorValue(at::Tensor values) : tensor(std::move(values)) {}
  C10_NOINLINE TensorValue(const TensorValue&) = default;
  C10_NOINLINE TensorValue& operator=(const TensorValue&) = default;
  C10_NOINLINE ~TensorValue() = default;

  bool is_constant() const { return !tensor.defined(); }
  // The constant for an operation with a tensor: a whole number for integers, so that they stay integers.
  at::Scalar beside(const at::Tensor& other) const {
    const bool whole = c10::isIntegralType(other.scalar_type(), /*includeBool=*/true);
    return whole ? at::Scalar(static_cast<int64_t>(constant)) : at::Scalar(constant);
  }
};

inline C10_NOINLINE TensorValue operator+(const TensorValue& a, const TensorValue& b) {
  if (a.is_constant() && b.is_constant()) return TensorValue(a.constant + b.constant);
  if (a.is_constant()) return b + a;
  if (!b.is_constant()) return a.tensor + b.tensor;
  return b.constant == 0 ? a : TensorValue(a.tensor + b.beside(a.tensor));
}
inline C10_NOINLINE TensorValue operator*(const TensorValue& a, const TensorValue& b) {
  if (a.is_constant() && b.is_constant()) return TensorValue(a.constant * b.constant);
  if (a.is_constant()) return b * a;
  if (!b.is_constant()) return a.tensor * b.tensor;
  return b.constant == 1 ? a : TensorValue(b.beside(a.tensor) * a.tensor);
}
inline C10_NOINLINE TensorValue operator-(const TensorValue& a) { return a * TensorValue(-1); }
inline C10_NOINLINE TensorValue operator-(const TensorValue& a, const TensorValue& b) {
  if (!a.is_constant() && !b.is_constant()) return a.tensor - b.tensor;
  return a + -b;
}
inline C10_NOINLINE TensorValue operator/(const TensorValue& a, const TensorValue& b) {
  if (b.is_constant()) return a * TensorValue(1 / b.constant);
  const at::Tensor inverse = b.tensor.reciprocal();
  return a.is_constant() ? TensorValue(inverse) * a : TensorValue(a.tensor * inverse);
}

// The dual numbers of all formulas, however few their variables: so their functions are compiled once, not for each
// cell. Those that cells call often are not inlined either.
using TensorDual = Dual<TensorValue, 32>;
template <int kVariables>
struct DualFor<TensorValue, kVariables> {
  static_assert(kVariables <= 32);
  using type = TensorDual;
};
template <>
struct Dual<TensorValue, 32> {
  TensorValue value, partials[32];
  uint32_t active = 0;

  C10_NOINLINE Dual() {}
  C10_NOINLINE explicit Dual(TensorValue number) : value(std::move(number)) {}
  explicit Dual(double number) : Dual(TensorValue(number)) {}
  C10_NOINLINE Dual(const Dual&) = default;
  C10_NOINLINE Dual& operator=(const Dual&) = default;
  C10_NOINLINE ~Dual() = default;
  static C10_NOINLINE Dual variable(const TensorValue& value, int index) {
    Dual result(value);
    result.partials[index] = TensorValue(1);
    result.active = 1u << index;
    return result;
  }

  bool depends_on(int index) const { return active >> index & 1; }

  void add_partials(const TensorValue& by, const Dual& of) {
    for (int k = 0; k < 32; ++k) {
      if (!of.depends_on(k)) continue;
      const TensorValue product = by * of.partials[k];
      partials[k] = depends_on(k) ? partials[k] + product : product;
    }
    active |= of.active;
  }
};
inline C10_NOINLINE TensorDual chain(const TensorDual& a, const TensorValue& value,
                                     const TensorValue& derivative) {
  TensorDual result(value);
  result.add_partials(derivative, a);
  return result;
}
inline C10_NOINLINE TensorDual chain(const TensorDual& a, const TensorValue& by_a,
                                     const TensorDual& b, const TensorValue& by_b,
                                     const TensorValue& value) {
  TensorDual result(value);
  result.add_partials(by_a, a);
  result.add_partials(by_b, b);
  return result;
}

template <>
struct Math<TensorValue> {
  // A function of x, which is a constant or a tensor.
  static TensorValue either(const TensorValue& x, double (*of_number)(double),
                            at::Tensor (at::Tensor::*of_tensor)() const) {
    return x.is_constant() ? TensorValue(of_number(x.constant)) : (x.tensor.*of_tensor)();
  }
  static TensorValue exp(const TensorValue& x) { return either(x, std::exp, &at::Tensor::exp); }
  static TensorValue expm1(const TensorValue& x) {
    return either(x, std::expm1, &at::Tensor::expm1);
  }
  static TensorValue log(const TensorValue& x) { return either(x, std::log, &at::Tensor::log); }
  static TensorValue log1p(const TensorValue& x) {
    return either(x, std::log1p, &at::Tensor::log1p);
  }
  static TensorValue sqrt(const TensorValue& x) { return either(x, std::sqrt, &at::Tensor::sqrt); }
  static TensorValue sin(const TensorValue& x) { return either(x, std::sin, &at::Tensor::sin); }
  static TensorValue cos(const TensorValue& x) { return either(x, std::cos, &at::Tensor::cos); }
  static TensorValue tanh(const TensorValue& x) { return either(x, std::tanh, &at::Tensor::tanh); }
  static TensorValue abs(const TensorValue& x) { return either(x, std::fabs, &at::Tensor::abs); }
  static TensorValue where_positive(const TensorValue& x, const TensorValue& a,
                                    const TensorValue& b) {
    return where_greater(x, TensorValue(0), a, b);
  }
  static TensorValue where_greater(const TensorValue& x, const TensorValue& y, const TensorValue& a,
                                   const TensorValue& b) {
    if (x.is_constant() && y.is_constant()) return x.constant > y.constant ? a : b;
    const at::Tensor difference = (x - y).tensor;
    const auto whole = [&](const TensorValue& value) {
      return value.is_constant() ? difference.new_full_symint({}, value.constant) : value.tensor;
    };
    return whole(a).where(difference.gt(0), whole(b));
  }
};

// Partials on which nothing depends are zeros.
inline C10_NOINLINE TensorDual choose(const TensorValue& x, const TensorValue& y,
                                      const TensorDual& a, const TensorDual& b) {
  TensorDual result(Math<TensorValue>::where_greater(x, y, a.value, b.value));
  result.active = a.active | b.active;
  for (int k = 0; k < 32; ++k) {
    if (!result.depends_on(k)) continue;
    result.partials[k] = Math<TensorValue>::where_greater(x, y, a.partials[k], b.partials[k]);
  }
  return result;
}

inline TensorValue sigmoid(const TensorValue& x) {
  return Math<TensorValue>::either(x, sigmoid<double>, &at::Tensor::sigmoid);
}
// This avoids where_positive(), whose derivative would be 0 * inf for large x.
inline TensorValue elu(const TensorValue& x) {
  return x.is_constant() ? TensorValue(elu(x.constant)) : TensorValue(elu(x.tensor));
}
// This avoids where_positive() and abs(), whose derivatives jump at 0.
inline TensorValue softplus(const TensorValue& x) {
  if (x.is_constant()) return TensorValue(softplus(x.constant));
  constexpr int kThreshold = 40;  // beyond it, log(1 + exp(x)) is x in double, too
  // Not by log_sigmoid, which fails on a GPU under vmap() of vmap().
  return TensorValue(at::_ops::softplus::call(x.tensor, 1, kThreshold));
}

}  // namespace lltm_jit
