// The input's part of the gates of all steps: checks, products, formula and derivative.
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/device.h"
#include "core/host/formula.h"
#include "rnn/sequence/sequence_products.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

constexpr const char *kForward = "input_gates", *kBackward = "input_gates_backward";

void check_operands(const char* function, const Tensor& input, const Tensor& weight_ih) {
  const Argument input_arg{function, "input", input};
  const Argument weight_arg{function, "weight_ih", weight_ih};
  check_floating_point(input_arg);
  check_same_dtype(weight_arg, input_arg);
  check_same_device(weight_arg, input_arg);
  check_rank(input_arg, 3, "[steps, batch_size, input_size]");
  check_rank(weight_arg, 2, "[gates*hidden_size, input_size]");
  check_shape(weight_arg, {weight_ih.sym_size(0), input.sym_size(2)},
              "[gates*hidden_size, input_size]");
}

void check(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias) {
  check_operands(kForward, input, weight_ih);
  if (!bias) return;
  const Argument bias_arg{kForward, "bias", *bias};
  check_same_dtype(bias_arg, {kForward, "input", input});
  check_same_device(bias_arg, {kForward, "input", input});
  check_shape(bias_arg, {weight_ih.sym_size(0)}, "[gates*hidden_size]");
}

void check_backward(const Tensor& grad_gates, const Tensor& input, const Tensor& weight_ih) {
  check_operands(kBackward, input, weight_ih);
  const Argument grad_arg{kBackward, "grad_gates", grad_gates};
  check_same_dtype(grad_arg, {kBackward, "input", input});
  check_same_device(grad_arg, {kBackward, "input", input});
  check_shape(grad_arg, {input.sym_size(0), input.sym_size(1), weight_ih.sym_size(0)},
              "[steps, batch_size, gates*hidden_size]");
}

// Steps and rows as rows of a matrix.
Tensor matrix(const Tensor& tensor) { return tensor.flatten(0, 1); }

Tensor kernel(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias) {
  check(input, weight_ih, bias);
  const KernelGuard guard(input);
  if (input.is_meta()) {
    return empty({input.sym_size(0), input.sym_size(1), weight_ih.sym_size(0)}, input);
  }
  return multiply_steps(matrix(input), weight_ih.t(), bias)
      .view({input.size(0), input.size(1), weight_ih.size(0)});
}

InputGradients backward_kernel(const Tensor& grad_gates, const Tensor& input,
                               const Tensor& weight_ih, std::array<bool, 3> mask) {
  check_backward(grad_gates, input, weight_ih);
  const KernelGuard guard(input);
  InputGradients grads;
  auto& [grad_input, grad_weight, grad_bias] = grads;
  if (input.is_meta()) {
    if (mask[0]) grad_input = empty(input.sym_sizes(), input);
    if (mask[1]) grad_weight = empty(weight_ih.sym_sizes(), input);
    if (mask[2]) grad_bias = empty({weight_ih.sym_size(0)}, input);
    return grads;
  }
  const Tensor grad = matrix(grad_gates);
  if (mask[0]) grad_input = multiply_steps(grad, weight_ih).view(input.sizes());
  if (mask[1]) grad_weight = multiply_steps(grad.t(), matrix(input));
  if (mask[2]) grad_bias = grad.sum(0);
  return grads;
}

Tensor formula(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias) {
  check(input, weight_ih, bias);
  const NoAutocast guard;
  const Tensor gates = input.matmul(weight_ih.t());
  return bias ? gates + *bias : gates;
}

InputGradients backward_formula(const Tensor& grad_gates, const Tensor& input,
                                const Tensor& weight_ih, std::array<bool, 3> mask) {
  check_backward(grad_gates, input, weight_ih);
  const NoAutocast guard;
  const Tensor grad = matrix(grad_gates);
  return {mask[0] ? grad_gates.matmul(weight_ih) : Tensor(),
          mask[1] ? grad.t().mm(matrix(input)) : Tensor(), mask[2] ? grad.sum(0) : Tensor()};
}

std::vector<Tensor> gradients(const BackwardPass& pass) {
  auto [input, weight_ih, bias] =
      ops::input_gates_backward(pass.grads[0], pass.saved[0], pass.saved[1],
                                {pass.wanted[0], pass.wanted[1], pass.wanted[2]});
  return {input, weight_ih, bias};
}

Tensor autograd(const Tensor& input, const Tensor& weight_ih, const OptionalTensor& bias) {
  if (any_forward_grad(input, weight_ih, bias)) return formula(input, weight_ih, bias);
  const Tensor gates = below_autograd(ops::input_gates, input, weight_ih, bias);
  if (any_requires_grad(input, weight_ih, bias)) {
    record({"InputGatesBackward", gradients}, {input, weight_ih, as_tensor(bias)}, {gates},
           /*saved=*/{input, weight_ih});
  }
  return gates;
}

}  // namespace

Operator<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)> ops::input_gates{
    .name = "lltm_jit::input_gates",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};

Operator<InputGradients(const Tensor&, const Tensor&, const Tensor&, std::array<bool, 3>)>
    ops::input_gates_backward{
        .name = "lltm_jit::input_gates_backward",
        .kernel = backward_kernel,
        .formula = backward_formula,
        .autograd = ByFormula<ops::input_gates_backward>::autograd,
    };

}  // namespace lltm_jit
