// my_op: checks, formula and derivative. The maths of the kernels is in my_op.h.
#include "basic/my_op/my_op.h"

#include "basic/my_op/my_op_ops.h"
#include "core/elementwise/host.h"
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"

namespace lltm_jit {
namespace {

using at::Tensor;

void check_numeric(const Argument& arg) {
  check_dense(arg);
  const auto dtype = arg.tensor.scalar_type();
  const auto real = c10::isComplexType(dtype) ? c10::toRealValueType(dtype) : dtype;
  TORCH_CHECK(c10::isIntegralType(dtype, /*includeBool=*/false) || real == at::kHalf ||
                  real == at::kBFloat16 || real == at::kFloat || real == at::kDouble,
              arg.function, "(): expected ", arg.name, " to have a numeric dtype, but got ", dtype);
}

void check_inputs(const Tensor& x, const Tensor& y) {
  const Argument x_arg{"my_op", "x", x}, y_arg{"my_op", "y", y};
  check_numeric(x_arg);
  check_same_dtype(y_arg, x_arg);
  check_same_device(y_arg, x_arg);
  check_shape(y_arg, x.sym_sizes(), "x.shape");
}

void check_gradient(const Tensor& grad) {
  const Argument grad_arg{"my_op_backward", "grad", grad};
  check_numeric(grad_arg);
  TORCH_CHECK(!c10::isIntegralType(grad.scalar_type(), /*includeBool=*/false),
              "my_op_backward(): expected grad to have a floating-point or complex dtype, but got ",
              grad.scalar_type());
}

Tensor kernel(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  auto [z] = elementwise<MyOp>({x, y});
  return z;
}

std::tuple<Tensor, Tensor> backward_kernel(const Tensor& grad) {
  check_gradient(grad);
  auto [grad_x, grad_y] = elementwise<MyOpGradient>({grad});
  return {grad_x, grad_y};
}

Tensor formula(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  const auto dtype = x.scalar_type();
  if (!c10::isBarebonesUnsignedType(dtype)) return 3 * x - y;
  // torch cannot compute in this dtype. Modulo its power of two, the sign makes no difference.
  return (3 * x.to(at::kLong) - y.to(at::kLong)).to(dtype);
}

std::tuple<Tensor, Tensor> backward_formula(const Tensor& grad) {
  check_gradient(grad);
  return {3 * grad, -grad};
}

std::vector<Tensor> gradients(const BackwardPass& pass) {
  auto [grad_x, grad_y] = ops::my_op_backward(pass.grads[0]);
  return {grad_x, grad_y};
}

Tensor autograd(const Tensor& x, const Tensor& y) {
  if (any_forward_grad(x, y)) return formula(x, y);
  const Tensor z = below_autograd(ops::my_op, x, y);
  if (any_requires_grad(x, y)) record({"MyOpBackward", gradients}, {x, y}, {z});
  return z;
}

}  // namespace

Operator<Tensor(const Tensor&, const Tensor&)> ops::my_op{
    .name = "lltm_jit::my_op",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};

Operator<std::tuple<Tensor, Tensor>(const Tensor&)> ops::my_op_backward{
    .name = "lltm_jit::my_op_backward",
    .kernel = backward_kernel,
    .formula = backward_formula,
    .autograd = ByFormula<ops::my_op_backward>::autograd,
};

}  // namespace lltm_jit
