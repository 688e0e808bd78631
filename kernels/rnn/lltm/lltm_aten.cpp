// LLTM cell in operations of torch.
#include "core/host/formula.h"
#include "rnn/lltm/lltm_ops.h"

namespace lltm_jit {
namespace {

struct Gates {
  Tensor input_gate, output_gate, candidate_cell;
};

Tensor zeros_like(const Tensor& tensor) { return tensor.new_zeros_symint(tensor.sym_sizes()); }

Tensor pre_activations(const Tensor& X, const CellInputs& in) {
  return in.bias ? in.bias->addmm(X, in.weights.t()) : X.mm(in.weights.t());
}

Gates activate(const Tensor& pre, at::ScalarType dtype) {
  const auto parts = pre.chunk(3, 1);
  return {parts[0].sigmoid().to(dtype), parts[1].sigmoid().to(dtype), elu(parts[2]).to(dtype)};
}

struct PointwiseGradients {
  Tensor pre, old_cell;
};

PointwiseGradients pointwise_backward(const Gates& gates, const Tensor& new_cell,
                                      const Tensor& grad_h, const Tensor& grad_cell) {
  const auto& [i, o, c] = gates;
  const Tensor t = new_cell.tanh();
  const Tensor cell = grad_cell + o * (1 - t * t) * grad_h;
  // c > 0 wherever the candidate's pre-activation is: see elu_derivative.
  const Tensor d_elu = c.clamp_max(0) + 1;
  return {cat({c * cell * (1 - i) * i, t * grad_h * (1 - o) * o, i * cell * d_elu}, 1), cell};
}

}  // namespace

StateAndGates forward_formula(const CellInputs& in) {
  check_cell("lltm_cell", in);
  const NoAutocast guard;
  const auto dtype = in.input.scalar_type();
  const Tensor pre = pre_activations(cat({in.old_h, in.input}, 1), in);
  const auto [i, o, c] = activate(pre, in.old_cell.scalar_type());
  const Tensor new_cell = in.old_cell + i * c;
  return {(o * new_cell.tanh()).to(dtype), new_cell, cat({i, o, c}, 1).to(dtype)};
}

// Note [Second derivatives]
// new_cell and gates are functions of the inputs, so a derivative of the gradients has to see how
// they came about: they are computed again from the inputs.
Gradients backward_formula(const BackwardInputs& in) {
  check_backward(in);
  const NoAutocast guard;
  const auto& [input, weights, bias, old_h, old_cell] = in.cell;
  const Tensor X = cat({old_h, input}, 1);
  const Gates gates = activate(pre_activations(X, in.cell), old_cell.scalar_type());
  const Tensor new_cell = old_cell + gates.input_gate * gates.candidate_cell;
  const auto [d_pre_cell, d_old_cell] =
      pointwise_backward(gates, new_cell, in.grad_h ? *in.grad_h : zeros_like(old_h),
                         in.grad_cell ? *in.grad_cell : zeros_like(old_cell));
  const Tensor d_pre = d_pre_cell.to(input.scalar_type());
  const auto hidden_size = old_h.sym_size(1);
  const auto& mask = in.output_mask;
  Gradients grads;
  auto& [d_input, d_weights, d_bias, d_old_h, d_cell] = grads;
  if (mask[0] || mask[3]) {
    const Tensor d_X = d_pre.mm(weights);
    if (mask[0]) d_input = d_X.slice_symint(1, hidden_size);
    if (mask[3]) d_old_h = d_X.slice_symint(1, 0, hidden_size);
  }
  if (mask[1]) d_weights = d_pre.t().mm(X);
  if (mask[2]) d_bias = d_pre.sum(0, /*keepdim=*/bias->dim() == 2);
  if (mask[4]) d_cell = d_old_cell;
  return grads;
}

std::vector<Tensor> tutorial_forward(const CellInputs& in) {
  check_cell("lltm_forward", in);
  const NoAutocast guard;
  const Tensor X = cat({in.old_h, in.input}, 1);
  const Tensor gate_weights = pre_activations(X, in);
  const auto [i, o, c] = activate(gate_weights, gate_weights.scalar_type());
  const Tensor new_cell = in.old_cell + i * c;
  return {(o * new_cell.tanh()).to(in.input.scalar_type()), new_cell, i, o, c, X, gate_weights};
}

std::vector<Tensor> tutorial_backward(const TutorialBackwardInputs& in) {
  check_tutorial_backward(in);
  const NoAutocast guard;
  const auto [d_pre_cell, d_old_cell] = pointwise_backward(
      {in.input_gate, in.output_gate, in.candidate_cell}, in.new_cell, in.grad_h, in.grad_cell);
  const Tensor d_pre = d_pre_cell.to(in.X.scalar_type());
  const Tensor d_X = d_pre.mm(in.weights);
  const auto hidden_size = in.grad_h.sym_size(1);
  // The gates say all that gate_weights, part of the tutorial's signature, could.
  return {d_X.slice_symint(1, 0, hidden_size), d_X.slice_symint(1, hidden_size), d_pre.t().mm(in.X),
          d_pre.sum(0, /*keepdim=*/true), d_old_cell};
}

}  // namespace lltm_jit
