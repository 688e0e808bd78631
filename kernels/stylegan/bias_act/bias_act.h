// bias_act: y = clamp(gain f(x + b)), b along one dimension; the maths of f, its first and its second
// derivative, and the arguments of the kernels.
//
// Note [Derivatives from the result]
// With u = y / gain, the derivative f' is a function of u for every activation but swish, and so the
// backward pass keeps y alone; for swish it keeps x and b. The mask M of the clamp is |y| < clamp. The
// second derivative goes through y, too: the backward pass is a function of (dy, y), whose derivative
// in y is d_dx dy M df'/du, and that is a gradient of y like any other.
// u has the sign of t = x + b where gain is not 0 and, for lrelu, alpha is not negative; the host takes
// a formula of torch's operations for the rest. A positive t whose y is rounded to zero, which takes a
// 16-bit type and a small gain, has the derivative at 0.
#pragma once

#include <cstdint>

#include "core/cuda/api.h"
#include "core/math/activations.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// The numbers that schemas and Python know them by.
enum class Act : int8_t { Linear = 1, Relu, Lrelu, Tanh, Sigmoid, Elu, Selu, Softplus, Swish };

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

struct BiasAct {
  Act act;
  double alpha;         // lrelu's slope for t <= 0
  double gain;          // not 0 in a derivative
  double inverse_gain;  // 1 / gain
  double clamp;         // a value of the tensors' type; negative for none
};

// The same in the type of the arithmetic.
template <typename T>
struct BiasActNumbers {
  T alpha, gain, inverse_gain;
  T clamp;      // infinity for none
  T unclamped;  // 1 where there is none, else 0; a bool would keep g++ from making vectors
  LLTM_JIT_HOST_DEVICE explicit BiasActNumbers(const BiasAct& op)
      : alpha(op.alpha),
        gain(op.gain),
        inverse_gain(op.inverse_gain),
        clamp(op.clamp >= 0 ? op.clamp : kInfinity),
        unclamped(op.clamp >= 0 ? 0 : 1) {}

 private:
  static constexpr double kInfinity = __builtin_huge_val();
};

// ----------------------------------------------------------------------------------- activations --

// What of t is above 0; a NaN counts as 0.
template <typename T>
LLTM_JIT_HOST_DEVICE T positive_part(T t) {
  return Math<T>::where_positive(t, t, T(0));
}

// f(t). A NaN stays one.
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

// f' from u = f(t).
template <Act act, typename T>
LLTM_JIT_HOST_DEVICE T slope(T u, T alpha) {
  using M = Math<T>;
  const T one(1);
  if constexpr (act == Act::Linear) return one;
  if constexpr (act == Act::Relu) return M::where_positive(u, one, T(0));
  if constexpr (act == Act::Lrelu) return M::where_positive(u, one, alpha);
  if constexpr (act == Act::Tanh) return tanh_derivative(u);
  if constexpr (act == Act::Sigmoid) return sigmoid_derivative(u);
  if constexpr (act == Act::Elu) return elu_derivative(u);
  if constexpr (act == Act::Selu) {
    return M::where_positive(u, T(kSeluScale), u + T(kSeluScale * kSeluAlpha));
  }
  if constexpr (act == Act::Softplus) return T(0) - M::expm1(T(0) - u);
}

// df'/du, for which f'' = f' df'/du.
template <Act act, typename T>
LLTM_JIT_HOST_DEVICE T slope_of_slope(T u) {
  using M = Math<T>;
  if constexpr (act == Act::Tanh) return T(-2) * u;
  if constexpr (act == Act::Sigmoid) return T(1) - T(2) * u;
  if constexpr (act == Act::Elu || act == Act::Selu) return M::where_positive(u, T(0), T(1));
  if constexpr (act == Act::Softplus) return M::exp(T(0) - u);
}

// Whether f is made of straight lines: there is no second derivative.
constexpr bool is_straight(Act act) {
  return act == Act::Linear || act == Act::Relu || act == Act::Lrelu;
}

// Calls `function` with a type whose value is `act`, so that it is known when `function` is compiled.
template <Act known>
struct ActConstant {
  static constexpr Act value = known;
};
template <bool straight_too, typename Function>
LLTM_JIT_HOST_DEVICE void with_act(Act act, const Function& function) {
  if constexpr (straight_too) {
    if (act == Act::Linear) return function(ActConstant<Act::Linear>());
    if (act == Act::Relu) return function(ActConstant<Act::Relu>());
    if (act == Act::Lrelu) return function(ActConstant<Act::Lrelu>());
  }
  switch (act) {
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

// What one element's pass computes; the dtypes, shapes and roles are those of the tensors below.
enum class Pass : int8_t {
  Forward,   // (x) -> y
  Backward,  // (dy, y or x) -> dx
  Second,    // (d_dx, dy, y or x) -> d_dy, and d_y or d_x
};
template <Pass pass>
inline constexpr int kInputsOf = static_cast<int>(pass) + 1;
template <Pass pass>
inline constexpr int kOutputsOf = pass == Pass::Second ? 2 : 1;

// y, or what of [-clamp, clamp] is next to it. A NaN stays one.
template <typename T>
LLTM_JIT_HOST_DEVICE T limited(T y, T clamp) {
  using M = Math<T>;
  const T upper = M::where_greater(y, clamp, clamp, y), least = T(0) - clamp;
  return M::where_greater(least, upper, least, upper);
}

// `value` where the clamp lets y through. A NaN is not let through.
template <typename T>
LLTM_JIT_HOST_DEVICE T masked(const BiasActNumbers<T>& numbers, T y, T value) {
  using M = Math<T>;
  const T let_through = M::where_greater(numbers.clamp, M::abs(y), value, T(0));
  return M::where_positive(numbers.unclamped, value, let_through);
}

// `b` is the element's bias, in a derivative that of swish alone.
template <Pass pass, Act act, typename T>
LLTM_JIT_HOST_DEVICE void bias_act_step(const BiasActNumbers<T>& numbers,
                                        const T (&in)[kInputsOf<pass>], const T& b,
                                        T (&out)[kOutputsOf<pass>]) {
  using M = Math<T>;
  if constexpr (pass == Pass::Forward) {
    T y = activation<act>(T(in[0] + b), numbers.alpha);
    out[0] = limited(T(numbers.gain * y), numbers.clamp);
    return;
  }
  constexpr int kSaved = kInputsOf<pass> - 1;
  T y = in[kSaved], first, second(0);
  if constexpr (act == Act::Swish) {
    const T t = y + b, s = sigmoid(t), rest = T(1) - s;
    y = numbers.gain * (t * s);
    first = s * (T(1) + t * rest);
    if constexpr (pass == Pass::Second) {
      second = numbers.gain * (s * rest * (T(2) + t * (rest - s)));
    }
  } else {
    const T u = numbers.inverse_gain * y;
    first = slope<act>(u, numbers.alpha);
    if constexpr (pass == Pass::Second) second = slope_of_slope<act>(u);
  }
  out[0] = masked(numbers, y, T(in[0] * (numbers.gain * first)));
  if constexpr (pass == Pass::Second) out[1] = masked(numbers, y, T(in[0] * in[1] * second));
}

// ------------------------------------------------------------------------------------- arguments --

// Tensors are dense, all in one memory order, [outer, channels, inner] in it.
struct BiasActArgs {
  Pass pass;
  ElementType type;
  BiasAct op;
  const void* inputs[3];  // [numel] of `type`
  void* outputs[2];       // [numel] of `type`, written
  const void* b;          // [channels] of `type`, or null
  void* sums;             // [channels] of `type`: those of outputs[0], in Pass::Backward; or null
  void* parts;            // sum_parts_numel() of the arithmetic type, written; null without `sums`
  int64_t numel, outer, channels, inner;
};

// In bias_act_cpu.cpp.
int64_t sum_parts_numel_cpu(const BiasActArgs& args);
void bias_act_cpu(const BiasActArgs& args);

#ifdef LLTM_JIT_CUDA
// In bias_act_cuda.cu. Enqueues on `stream`; numel is positive.
int64_t sum_parts_numel_cuda(const BiasActArgs& args);
cudaError_t launch_bias_act(const BiasActArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
