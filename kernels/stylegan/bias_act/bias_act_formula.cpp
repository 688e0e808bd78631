// bias_act in operations of torch. 16-bit types are computed in float and rounded once.
#include <ATen/core/Tensor.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/selu_ops.h>
#include <ATen/ops/softplus_ops.h>

#include "core/host/formula.h"
#include "stylegan/bias_act/bias_act_ops.h"

namespace lltm_jit {
namespace {

Tensor widened(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

// x + b.
Tensor with_bias(const Tensor& x, const OptionalTensor& b, const BiasActKind& kind) {
  return b ? widened(x) + along(widened(*b), bias_dim(kind, x), x) : widened(x);
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
      return t.tanh();
    case Act::Sigmoid:
      return t.sigmoid();
    case Act::Elu:
      return elu(t);
    case Act::Selu:
      return at::_ops::selu::call(t);
    case Act::Softplus:  // beyond 40 it is t in every dtype
      return at::_ops::softplus::call(t, /*beta=*/1, /*threshold=*/40);
    default:
      return t * t.sigmoid();
  }
}

// f' from u = f(t).
Tensor slope(const Tensor& u, const BiasActKind& kind) {
  const auto choose = [&](const Tensor& positive, const Tensor& other) {
    return positive.where(u.gt(0), other);
  };
  const auto filled = [&](double value) { return u.new_full({}, value); };
  switch (kind.activation()) {
    case Act::Linear:
      return filled(1);
    case Act::Relu:
      return choose(filled(1), filled(0));
    case Act::Lrelu:
      return choose(filled(1), filled(kind.alpha));
    case Act::Tanh:
      return 1 - u * u;
    case Act::Sigmoid:
      return u * (1 - u);
    case Act::Elu:
      return choose(filled(1), u.add(1));
    case Act::Selu:
      return choose(filled(kSeluScale), u.add(kSeluScale * kSeluAlpha));
    default:
      return -at::_ops::expm1::call(-u);
  }
}

// df'/du.
Tensor slope_of_slope(const Tensor& u, const BiasActKind& kind) {
  switch (kind.activation()) {
    case Act::Tanh:
      return -2 * u;
    case Act::Sigmoid:
      return 1 - 2 * u;
    case Act::Softplus:
      return (-u).exp();
    default:
      return u.le(0).to(u.scalar_type());
  }
}

struct Slopes {
  Tensor y, first, second;  // gain f'; and its derivative in what is saved
};

Slopes slopes(const Tensor& saved, const OptionalTensor& b, const BiasActKind& kind, bool second) {
  if (kind.activation() == Act::Swish) {
    const Tensor t = with_bias(saved, b, kind), s = t.sigmoid(), rest = 1 - s;
    return {kind.gain * (t * s), kind.gain * (s * (t * rest).add(1)),
            second ? kind.gain * (s * rest * (t * (rest - s)).add(2)) : Tensor()};
  }
  const Tensor y = widened(saved), u = y.div(kind.gain);
  return {y, kind.gain * slope(u, kind), second ? slope_of_slope(u, kind) : Tensor()};
}

// Zero where the clamp stopped y.
Tensor masked(const Tensor& value, const Tensor& y, const BiasActKind& kind, at::ScalarType dtype) {
  const Clamp clamp = rounded_clamp(kind, dtype);
  return clamp ? value.where(y.abs().lt(*clamp), 0) : value;
}

// The sum over all dimensions but b's.
Tensor sum_of_channels(const Tensor& x, const BiasActKind& kind) {
  std::vector<int64_t> others;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != bias_dim(kind, x)) others.push_back(d);
  }
  return others.empty() ? x : x.sum(others);
}

}  // namespace

Tensor along(const Tensor& b, int64_t dim, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[dim] = -1;
  return b.reshape(shape);
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
  return y.to(dtype);
}

BiasActGradients backward_formula(const BiasActBackwardInputs& in) {
  check_backward(in);
  const NoAutocast guard;
  const auto dtype = in.grad.scalar_type();
  Tensor grad_x = widened(in.grad);
  if (in.saved) {
    const Slopes at = slopes(*in.saved, in.b, in.kind, /*second=*/false);
    grad_x = masked(grad_x * at.first, at.y, in.kind, dtype);
  } else {
    grad_x = in.kind.gain * grad_x;
  }
  return {in.output_mask[0] ? grad_x.to(dtype) : Tensor(),
          in.output_mask[1] ? sum_of_channels(grad_x, in.kind).to(dtype) : Tensor()};
}

BiasActSecondGradients second_formula(const BiasActSecondInputs& in) {
  check_second(in);
  const NoAutocast guard;
  const auto dtype = in.grad.scalar_type();
  const Tensor grad_grad = widened(in.grad_grad);
  const Slopes at = slopes(in.saved, in.b, in.kind, /*second=*/true);
  const Tensor d_grad = masked(grad_grad * at.first, at.y, in.kind, dtype);
  const Tensor d_saved = masked(grad_grad * widened(in.grad) * at.second, at.y, in.kind, dtype);
  return {d_grad.to(dtype), d_saved.to(dtype),
          in.b ? sum_of_channels(d_saved, in.kind).to(dtype) : Tensor()};
}

}  // namespace lltm_jit
