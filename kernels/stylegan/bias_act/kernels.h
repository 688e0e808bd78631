// bias_act: y = clamp(gain f(x + b)), with b along one dimension: the maths of f and of its
// derivative, and the arguments of the kernels.
//
// Note [What a derivative needs]
// linear, relu and lrelu consist of one or two lines: the backward pass needs only the sign of t = x +
// b, which y has. linear with a clamp keeps x and b and computes y again, because networks add to its y
// in place. All other activations keep x and b, too, because derivatives computed from a y rounded to
// 16 bits would have a wrong size or sign where f is nearly flat. Their derivatives are written in
// exp(-|t|), without cancellation. y lacks the sign of t if it is rounded to 0 or the gain is 0, and
// for lrelu if alpha is negative; the host then uses a formula of torch's operations.
//
// Note [The clamp's mask]
// The derivative is 0 where y, rounded to the tensors' type, is not below the clamp. `most` is the
// largest number of the arithmetic type that rounds to less than the clamp, so y itself need not be
// rounded. A NaN is never greater than `most`, and without a clamp neither is any y.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/launch/api.h"
#include "core/math/activations.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// Schemas and Python know the activations by these numbers.
enum class Act : int8_t { Linear = 1, Relu, Lrelu, Tanh, Sigmoid, Elu, Selu, Softplus, Swish };

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

struct BiasAct {
  Act act;
  double alpha;  // lrelu's slope for t <= 0
  double gain;
  double clamp;  // a value of the tensors' type; infinity for none
  double most;   // see Note [The clamp's mask]; infinity without a clamp
};

// The same numbers in the arithmetic type.
template <typename T>
struct BiasActNumbers {
  T alpha, gain, clamp, most;
  T sign;  // of the gain
  LLTM_JIT_HOST_DEVICE explicit BiasActNumbers(const BiasAct& op)
      : alpha(op.alpha),
        gain(op.gain),
        clamp(op.clamp),
        most(op.most),
        sign(op.gain < 0 ? -1 : 1) {}
};

// ----------------------------------------------------------------------------------- activations --

// max(t, 0); a NaN counts as 0.
template <typename T>
LLTM_JIT_HOST_DEVICE T positive_part(T t) {
  return Math<T>::where_positive(t, t, T(0));
}

// f(t). A NaN stays a NaN.
template <Act act, typename T>
LLTM_JIT_HOST_DEVICE T activation(T t, T alpha) {
  using M = Math<T>;
  const T zero(0);
  if constexpr (act == Act::Linear) return t;
  if constexpr (act == Act::Relu) return M::where_greater(zero, t, zero, t);
  if constexpr (act == Act::Lrelu) return M::where_positive(t, t, alpha * t);
  if constexpr (act == Act::Tanh) return M::tanh(t);
  if constexpr (act == Act::Sigmoid) return sigmoid(t);
  if constexpr (act == Act::Elu) return elu(t);
  if constexpr (act == Act::Selu) {
    return M::where_positive(t, T(kSeluScale) * t, T(kSeluScale * kSeluAlpha) * M::expm1(t));
  }
  if constexpr (act == Act::Softplus) {
    return positive_part(t) + M::log1p(M::exp(zero - M::abs(t)));
  }
  if constexpr (act == Act::Swish) return t * sigmoid(t);
}

// f' of a line, from t or from a number with the sign of t.
template <Act act, typename T>
LLTM_JIT_HOST_DEVICE T slope(T t, T alpha) {
  using M = Math<T>;
  const T one(1);
  if constexpr (act == Act::Linear) return one;
  if constexpr (act == Act::Relu) return M::where_positive(t, one, T(0));
  if constexpr (act == Act::Lrelu) return M::where_positive(t, one, alpha);
}

// sigmoid(t) and sigmoid(-t), and their product.
template <typename T>
struct Sigmoids {
  T of, of_minus, product;
  LLTM_JIT_HOST_DEVICE explicit Sigmoids(T t) {
    using M = Math<T>;
    const T e = M::exp(T(0) - M::abs(t)), larger = T(1) / (T(1) + e), smaller = e * larger;
    of = M::where_positive(t, larger, smaller);
    of_minus = M::where_positive(t, smaller, larger);
    product = smaller * larger;
  }
};
template <typename T>
LLTM_JIT_HOST_DEVICE T tanh_of(T t, const Sigmoids<T>&) {  // the sigmoids of 2 t
  return Math<T>::tanh(t);
}

// f(t) and f'(t) of a curve.
template <typename T>
struct Curve {
  T value, first;
};
template <Act act, typename T>
LLTM_JIT_HOST_DEVICE Curve<T> curve(T t) {
  using M = Math<T>;
  const T zero(0), one(1);
  if constexpr (act == Act::Tanh) {
    const Sigmoids<T> s(T(2) * t);
    return {tanh_of(t, s), T(4) * s.product};
  } else if constexpr (act == Act::Elu || act == Act::Selu) {
    const T above(act == Act::Elu ? 1 : kSeluScale);
    const T below =
        T(act == Act::Elu ? 1 : kSeluScale * kSeluAlpha) * M::exp(M::where_positive(t, zero, t));
    return {activation<act>(t, zero), M::where_positive(t, above, below)};
  } else {
    const Sigmoids<T> s(t);
    if constexpr (act == Act::Sigmoid) {
      return {s.of, s.product};
    } else if constexpr (act == Act::Softplus) {
      return {activation<act>(t, zero), s.of};
    } else {
      return {t * s.of, s.of * (one + t * s.of_minus)};
    }
  }
}

// Whether f consists of straight lines.
LLTM_JIT_HOST_DEVICE constexpr bool is_straight(Act act) {
  return act == Act::Linear || act == Act::Relu || act == Act::Lrelu;
}

// Calls `function` with a type whose constant is `act`, so that the compiler knows the activation.
template <Act act>
using ActConstant = std::integral_constant<Act, act>;
template <typename Function>
LLTM_JIT_HOST_DEVICE void with_act(Act act, const Function& function) {
  switch (act) {
    case Act::Linear:
      return function(ActConstant<Act::Linear>());
    case Act::Relu:
      return function(ActConstant<Act::Relu>());
    case Act::Lrelu:
      return function(ActConstant<Act::Lrelu>());
    case Act::Tanh:
      return function(ActConstant<Act::Tanh>());
    case Act::Sigmoid:
      return function(ActConstant<Act::Sigmoid>());
    case Act::Elu:
      return function(ActConstant<Act::Elu>());
    case Act::Selu:
      return function(ActConstant<Act::Selu>());
    case Act::Softplus:
      return function(ActConstant<Act::Softplus>());
    default:
      return function(ActConstant<Act::Swish>());
  }
}

// ---------------------------------------------------------------------------------------- passes --

// The passes over one element. Dtypes, shapes and roles are those of the tensors below.
enum class Pass : int8_t {
  Forward,   // (x) -> y
  Backward,  // (dy, y of a line or x of a curve) -> dx
};
template <Pass pass>
inline constexpr int kInputsOf = static_cast<int>(pass) + 1;

// y clamped to [-clamp, clamp]. A NaN stays a NaN.
template <typename T>
LLTM_JIT_HOST_DEVICE T limited(T y, T clamp) {
  using M = Math<T>;
  const T upper = M::where_greater(y, clamp, clamp, y), least = T(0) - clamp;
  return M::where_greater(least, upper, least, upper);
}

// `value` where the clamp does not stop y, else 0: see Note [The clamp's mask].
template <typename T>
LLTM_JIT_HOST_DEVICE T masked(const BiasActNumbers<T>& numbers, T y, T value) {
  using M = Math<T>;
  return M::where_greater(M::abs(y), numbers.most, T(0), value);
}

// `b` is the element's bias; a derivative of a line needs none.
template <Pass pass, Act act, typename T>
LLTM_JIT_HOST_DEVICE T bias_act_step(const BiasActNumbers<T>& numbers,
                                     const T (&in)[kInputsOf<pass>], const T& b) {
  if constexpr (pass == Pass::Forward) {
    const T y = activation<act>(T(in[0] + b), numbers.alpha);
    return limited(T(numbers.gain * y), numbers.clamp);
  } else if constexpr (is_straight(act)) {
    const T y = in[1], first = slope<act>(T(numbers.sign * y), numbers.alpha);
    return masked(numbers, y, T(in[0] * (numbers.gain * first)));
  } else {
    const Curve<T> f = curve<act>(T(in[1] + b));
    const T y = numbers.gain * f.value;
    return masked(numbers, y, T(in[0] * (numbers.gain * f.first)));
  }
}

// ------------------------------------------------------------------------------------- arguments --

// Tensors are dense and share one memory order, in which they are [outer, channels, inner].
struct BiasActArgs {
  Pass pass;
  ElementType type;
  BiasAct op;
  const void* inputs[2];  // [numel] of `type`
  void* output;           // [numel] of `type`, written; or null: on CUDA, only `sums` are wanted
  const void* b;          // [channels] of `type`, or null
  void* sums;             // [channels] of `type`: sums of `output` in Pass::Backward; or null
  void* parts;            // sum_parts_numel() of the arithmetic type, written; null without `sums`
  int64_t numel, outer, channels, inner;
};

// Defined in cpu/kernel.cpp.
int64_t sum_parts_numel_cpu(const BiasActArgs& args);
void bias_act_cpu(const BiasActArgs& args);

#ifdef LLTM_JIT_CUDA
// Defined in cuda/backward.cu and cuda/forward.cu. The launch enqueues on `stream`; numel is positive.
int64_t sum_parts_numel_cuda(const BiasActArgs& args);
cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
