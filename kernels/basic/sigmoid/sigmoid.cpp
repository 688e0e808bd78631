// sigmoid: checks, formula and derivative. The maths of the kernels is in sigmoid.h.
#include "basic/sigmoid/sigmoid.h"

#include "basic/sigmoid/sigmoid_ops.h"
#include "core/elementwise/host.h"
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"

namespace lltm_jit {
namespace {

using at::Tensor;

void check_backward(const Tensor& grad, const Tensor& s) {
  const Argument grad_arg{"sigmoid_backward", "grad", grad}, s_arg{"sigmoid_backward", "s", s};
  check_floating_point(s_arg);
  check_same_dtype(grad_arg, s_arg);
  check_same_device(grad_arg, s_arg);
  check_shape(grad_arg, s.sym_sizes(), "s.shape");
}

Tensor kernel(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  auto [s] = elementwise<Sigmoid>({x});
  return s;
}

Tensor backward_kernel(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  auto [grad_x] = elementwise<SigmoidGradient>({grad, s});
  return grad_x;
}

Tensor formula(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  return x.sigmoid();
}

Tensor backward_formula(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  return grad * (1 - s) * s;
}

// Differentiable as it stands, since both of its parts are.
Tensor d_formula(const Tensor& z) {
  check_floating_point({"d_sigmoid", "z", z});
  const Tensor s = ops::sigmoid(z);
  return (1 - s) * s;
}

std::vector<Tensor> gradients(const BackwardPass& pass) {
  return {ops::sigmoid_backward(pass.grads[0], pass.saved[0])};
}

Tensor autograd(const Tensor& x) {
  if (any_forward_grad(x)) return formula(x);
  const Tensor s = below_autograd(ops::sigmoid, x);
  if (any_requires_grad(x)) {
    record({"SigmoidBackward", gradients}, {x}, {s}, /*saved=*/{}, /*saved_outputs=*/{s});
  }
  return s;
}

}  // namespace

Operator<Tensor(const Tensor&)> ops::sigmoid{
    .name = "lltm_jit::sigmoid",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};

Operator<Tensor(const Tensor&, const Tensor&)> ops::sigmoid_backward{
    .name = "lltm_jit::sigmoid_backward",
    .kernel = backward_kernel,
    .formula = backward_formula,
    .autograd = ByFormula<ops::sigmoid_backward>::autograd,
};

Composite<Tensor(const Tensor&)> ops::d_sigmoid{
    .name = "lltm_jit::d_sigmoid",
    .formula = d_formula,
};

}  // namespace lltm_jit
