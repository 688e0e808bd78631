// bias_act in operations of torch: for every device, vmap, forward-mode differentiation and further
// derivatives. 16-bit types compute in float and are rounded once. operators.cpp includes it.
#include "core/host/formula.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/selu_ops.h>
#include <ATen/ops/softplus_ops.h>

#include "stylegan/bias_act/operators.h"

namespace lltm_jit {
namespace {

Tensor widened(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

Tensor along(const Tensor& b, int64_t dim, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[dim] = -1;
  return b.reshape(shape);
}

// x + b.
Tensor with_bias(const Tensor& x, const OptionalTensor& b, const BiasActKind& kind) {
  return b ? widened(x) + along(widened(*b), bias_dim(kind, x), x) : widened(x);
}

Tensor choose(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return a.where(condition, b);
}

// sigmoid and tanh from which autograd makes derivatives without cancellation, unlike 1 - tanh(t)^2.
Tensor sigmoid(const Tensor& t) {
  const Tensor positive = t.gt(0), e = choose(positive, -t, t).exp();
  const Tensor larger = e.add(1).reciprocal();
  return choose(positive, larger, e * larger);
}
Tensor tanh(const Tensor& t) {
  const Tensor e = t.abs().mul(-2).exp(), large = t.sign().mul((1 - e).div(e.add(1)));
  return choose(t.abs().lt(0.5), t.tanh(), large);
}

Tensor activation(const Tensor& t, const BiasActKind& kind) {
  switch (kind.activation()) {
    case Act::Linear:
      return t;
    case Act::Relu:
      return t.relu();
    case Act::Lrelu:
      return at::_ops::leaky_relu::call(t, kind.alpha);
    case Act::Tanh:
      return tanh(t);
    case Act::Sigmoid:
      return sigmoid(t);
    case Act::Elu:
      return elu(t);
    case Act::Selu:
      return at::_ops::selu::call(t);
    case Act::Softplus:  // beyond 40 it is t in every dtype
      return at::_ops::softplus::call(t, /*beta=*/1, /*threshold=*/40);
    default:
      return t * sigmoid(t);
  }
}

// gain f and gain f'.
struct Slope {
  Tensor y, first;
};

// f' of an activation that is not piecewise linear, at t.
Tensor derivative(const Tensor& t, Act act) {
  const auto of_exponential = [&](double above, double below) {
    const Tensor e = (-t).relu().neg().exp();  // its own derivative at 0 is 0, as torch's
    return choose(t.gt(0), t.new_full({}, above), e.mul(below));
  };
  switch (act) {
    case Act::Tanh:
      return sigmoid(t.mul(2)).mul(4) * sigmoid(t.mul(-2));
    case Act::Sigmoid:
      return sigmoid(t) * sigmoid(-t);
    case Act::Elu:
      return of_exponential(1, 1);
    case Act::Selu:
      return of_exponential(kSeluScale, kSeluScale * kSeluAlpha);
    case Act::Softplus:
      return sigmoid(t);
    default:
      return sigmoid(t) * (t * sigmoid(-t)).add(1);
  }
}

Slope slope_of_x(const Tensor& x, const OptionalTensor& b, const BiasActKind& kind) {
  const Tensor t = with_bias(x, b, kind);
  return {kind.gain * activation(t, kind), kind.gain * derivative(t, kind.activation())};
}

Slope slope_of_y(const Tensor& saved, const BiasActKind& kind) {
  const Tensor y = widened(saved);
  const double below = kind.activation() == Act::Linear  ? 1
                       : kind.activation() == Act::Lrelu ? kind.alpha
                                                         : 0;
  const Tensor positive = kind.gain < 0 ? y.lt(0) : y.gt(0);
  const auto filled = [&](double value) { return y.new_full({}, kind.gain * value); };
  return {y, choose(positive, filled(1), filled(below))};
}

// Zero where the clamp stopped y.
Tensor masked(const Tensor& value, const Tensor& y, const BiasActKind& kind, at::ScalarType dtype) {
  const Clamp clamp = rounded_clamp(kind, dtype);
  return clamp ? choose(y.to(dtype).abs().ge(*clamp), value.new_full({}, 0), value) : value;
}

// The sum over all dimensions but b's.
Tensor sum_of_channels(const Tensor& x, const BiasActKind& kind) {
  std::vector<int64_t> others;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != bias_dim(kind, x)) others.push_back(d);
  }
  return others.empty() ? x.clone() : x.sum(others);
}

Tensor bias_act_formula(const BiasActInputs& in) {
  check_bias_act(in);
  const NoAutocast guard;
  const auto dtype = in.x.scalar_type();
  Tensor y = activation(with_bias(in.x, in.b, in.kind), in.kind);
  if (in.kind.gain != 1) y = in.kind.gain * y;
  if (const Clamp clamp = rounded_clamp(in.kind, dtype)) {
    // Not clamp(), whose derivative at the clamp itself is 1.
    y = y.sign().mul(*clamp).where(y.to(dtype).abs().ge(*clamp), y);
  }
  return result_like(in.x, y.to(dtype));
}

BiasActGradients backward_formula(const BiasActBackwardInputs& in) {
  check_backward(in);
  const NoAutocast guard;
  const auto dtype = in.grad.scalar_type();
  Tensor grad_x = widened(in.grad);
  if (in.saved) {
    const Slope at = is_straight(in.kind.activation()) ? slope_of_y(*in.saved, in.kind)
                                                       : slope_of_x(*in.saved, in.b, in.kind);
    grad_x = masked(grad_x * at.first, at.y, in.kind, dtype);
  } else {
    grad_x = in.kind.gain * grad_x;
  }
  return {in.output_mask[0] ? result_like(in.grad, grad_x.to(dtype)) : Tensor(),
          in.output_mask[1] ? sum_of_channels(grad_x, in.kind).to(dtype) : Tensor()};
}

}  // namespace
}  // namespace lltm_jit
