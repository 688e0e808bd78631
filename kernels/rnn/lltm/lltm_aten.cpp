#include "rnn/lltm/lltm_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lltm_jit {
namespace {

// Every formula computes in the dtypes that it is given: what autocast casts, it has cast before.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

struct Gates {
  Tensor input_gate, output_gate, candidate_cell;
};

Tensor pre_activations(const Tensor& X, const Tensor& weights, const OptionalTensor& bias) {
  return bias ? at::addmm(*bias, X, weights.t()) : at::mm(X, weights.t());
}

Gates activate(const Tensor& pre, at::ScalarType dtype) {
  const auto parts = pre.chunk(3, 1);
  return {at::sigmoid(parts[0]).to(dtype), at::sigmoid(parts[1]).to(dtype),
          at::elu(parts[2]).to(dtype)};
}

struct PointwiseGradients {
  Tensor pre, old_cell;
};

PointwiseGradients pointwise_backward(const Gates& gates, const Tensor& new_cell,
                                      const Tensor& grad_h, const Tensor& grad_cell) {
  const auto& [i, o, c] = gates;
  const Tensor t = at::tanh(new_cell);
  const Tensor cell = grad_cell + o * (1 - t * t) * grad_h;
  // c > 0 wherever the candidate's pre-activation is: see elu_derivative.
  const Tensor d_elu = at::where(c > 0, at::Scalar(1.0), c + 1);
  return {at::cat({c * cell * (1 - i) * i, t * grad_h * (1 - o) * o, i * cell * d_elu}, 1), cell};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> lltm_forward_aten(const Tensor& input, const Tensor& weights,
                                                     const OptionalTensor& bias,
                                                     const Tensor& old_h, const Tensor& old_cell) {
  const NoAutocast guard;
  const Tensor pre = pre_activations(at::cat({old_h, input}, 1), weights, bias);
  const auto [i, o, c] = activate(pre, old_cell.scalar_type());
  const Tensor new_cell = old_cell + i * c;
  const Tensor new_h = (o * at::tanh(new_cell)).to(input.scalar_type());
  return {new_h, new_cell, at::cat({i, o, c}, 1).to(input.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> lltm_backward_aten(
    const OptionalTensor& grad_h, const OptionalTensor& grad_cell, const Tensor& input,
    const Tensor& weights, const OptionalTensor& bias, const Tensor& old_h, const Tensor& old_cell,
    std::array<bool, 5> output_mask) {
  const NoAutocast guard;
  const auto dtype = input.scalar_type();
  const Tensor X = at::cat({old_h, input}, 1);
  const Gates gates = activate(pre_activations(X, weights, bias), old_cell.scalar_type());
  const Tensor new_cell = old_cell + gates.input_gate * gates.candidate_cell;
  const auto [d_pre_cell, d_old_cell] =
      pointwise_backward(gates, new_cell, grad_h ? *grad_h : at::zeros_like(old_h),
                         grad_cell ? *grad_cell : at::zeros_like(old_cell));
  const Tensor d_pre = d_pre_cell.to(dtype);
  const auto hidden_size = old_h.sym_size(1);
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> grads;
  auto& [d_input, d_weights, d_bias, d_old_h, d_cell] = grads;
  if (output_mask[0] || output_mask[3]) {
    const Tensor d_X = at::mm(d_pre, weights);
    if (output_mask[0]) d_input = d_X.slice_symint(1, hidden_size);
    if (output_mask[3]) d_old_h = d_X.slice_symint(1, 0, hidden_size);
  }
  if (output_mask[1]) d_weights = at::mm(d_pre.t(), X);
  if (output_mask[2]) d_bias = bias->dim() == 2 ? d_pre.sum(0, /*keepdim=*/true) : d_pre.sum(0);
  if (output_mask[4]) d_cell = d_old_cell;
  return grads;
}

std::vector<Tensor> lltm_tutorial_forward(const Tensor& input, const Tensor& weights,
                                          const OptionalTensor& bias, const Tensor& old_h,
                                          const Tensor& old_cell) {
  check_lltm_inputs("lltm_forward", input, weights, bias, old_h, old_cell);
  const NoAutocast guard;
  const Tensor X = at::cat({old_h, input}, 1);
  const Tensor gate_weights = pre_activations(X, weights, bias);
  const auto [i, o, c] = activate(gate_weights, gate_weights.scalar_type());
  const Tensor new_cell = old_cell + i * c;
  return {(o * at::tanh(new_cell)).to(input.scalar_type()), new_cell, i, o, c, X, gate_weights};
}

std::vector<Tensor> lltm_tutorial_backward(const Tensor& grad_h, const Tensor& grad_cell,
                                           const Tensor& new_cell, const Tensor& input_gate,
                                           const Tensor& output_gate, const Tensor& candidate_cell,
                                           const Tensor& X, const Tensor& gate_weights,
                                           const Tensor& weights) {
  check_lltm_tutorial_backward(grad_h, grad_cell, new_cell, input_gate, output_gate, candidate_cell,
                               X, gate_weights, weights);
  const NoAutocast guard;
  const auto [d_pre_cell, d_old_cell] =
      pointwise_backward({input_gate, output_gate, candidate_cell}, new_cell, grad_h, grad_cell);
  const Tensor d_pre = d_pre_cell.to(X.scalar_type());
  const Tensor d_X = at::mm(d_pre, weights);
  const int64_t hidden_size = grad_h.size(1);
  // The gates say all that gate_weights, part of the tutorial's signature, could.
  return {d_X.slice(1, 0, hidden_size), d_X.slice(1, hidden_size), at::mm(d_pre.t(), X),
          d_pre.sum(0, /*keepdim=*/true), d_old_cell};
}

}  // namespace lltm_jit
