// my_op: checks, autograd and registration.
#include "basic/my_op/my_op.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/utils/pybind.h>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/elementwise.h"
#include "core/host/library.h"

namespace lltm_jit {
namespace {

using at::Tensor;
using Gradients = std::tuple<Tensor, Tensor>;

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

// ------------------------------------------------------- kernels on CPU and CUDA, shapes on meta --

Tensor my_op_kernel(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  auto [z] = elementwise<MyOp>({x, y});
  return z;
}

Gradients my_op_backward_kernel(const Tensor& grad) {
  check_gradient(grad);
  auto [grad_x, grad_y] = elementwise<MyOpGradient>({grad});
  return {grad_x, grad_y};
}

// ----------------------------------------------------- the ATen formula: other devices, vmap, jvp --

Tensor my_op_aten(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  return 3 * x - y;
}

Gradients my_op_backward_aten(const Tensor& grad) {
  check_gradient(grad);
  return {3 * grad, at::neg(grad)};
}

// -------------------------------------------------------------------------- dispatcher, autograd --

Tensor call_my_op(const Tensor& x, const Tensor& y) {
  static const auto op = find_op<decltype(call_my_op)>("lltm_jit::my_op");
  return op.call(x, y);
}

Gradients call_my_op_backward(const Tensor& grad) {
  static const auto op = find_op<decltype(call_my_op_backward)>("lltm_jit::my_op_backward");
  return op.call(grad);
}

struct MyOpBackward : public OpNode {
  std::string name() const override { return "MyOpBackward"; }
  variable_list backward(const variable_list& grads) override {
    auto [grad_x, grad_y] = call_my_op_backward(grads[0]);
    return {grad_x, grad_y};
  }
};

Tensor my_op_autograd(const Tensor& x, const Tensor& y) {
  if (any_forward_grad(x, y)) return my_op_aten(x, y);
  const Tensor z = below_autograd(call_my_op, x, y);
  if (compute_requires_grad(x, y)) record<MyOpBackward>({z}, x, y);
  return z;
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_my_op(OpLibraries& libraries) {
  libraries.add<my_op_kernel, my_op_aten, my_op_autograd>("my_op");
  libraries.add<my_op_backward_kernel, my_op_backward_aten,
                ByFormula<call_my_op_backward, my_op_backward_aten>::autograd>("my_op_backward");
}

void bind_my_op(pybind11::module_& m) {
  m.def("my_op", &call_my_op, pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace lltm_jit
