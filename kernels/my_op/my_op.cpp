// my_op: checks, allocation, autograd and registration.
#include "my_op/my_op.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/utils/pybind.h>

#include "core/autograd.h"
#include "core/checks.h"
#include "core/device.h"
#include "core/library.h"

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

// How the kernels see a dtype: integers by width, a complex number as two real ones.
struct Elements {
  ElementType type;
  int64_t count;  // elements of `type` in one of the tensor
};

Elements elements_of(at::ScalarType dtype) {
  if (c10::isComplexType(dtype)) return {floating_type(c10::toRealValueType(dtype)), 2};
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    constexpr ElementType by_log2_bytes[] = {ElementType::Int8, ElementType::Int16,
                                             ElementType::Int32, ElementType::Int64};
    return {by_log2_bytes[__builtin_ctzll(c10::elementSize(dtype))], 1};
  }
  return {floating_type(dtype), 1};
}

Tensor empty_result(const Tensor& x) {
  return at::empty_symint(x.sym_sizes(), x.options(), x.suggest_memory_format());
}

// --------------------------------------------------------------------- kernels on CPU and CUDA --

Tensor my_op_kernel(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  const KernelGuard guard(x);
  Tensor z = empty_result(x);
  if (z.numel() == 0) return z;
  const auto format = x.suggest_memory_format();
  const Tensor dense_x = x.contiguous(format);
  const Tensor dense_y = y.contiguous(format);
  const auto [type, count] = elements_of(x.scalar_type());
  const ElementwiseArgs<MyOp> args{
      .inputs = {dense_x.const_data_ptr(), dense_y.const_data_ptr()},
      .outputs = {z.mutable_data_ptr()},
      .numel = z.numel() * count,
      .type = type,
  };
  LLTM_JIT_RUN(x, args, my_op_forward_cpu, launch_my_op_forward);
  return z;
}

Gradients my_op_backward_kernel(const Tensor& grad) {
  check_gradient(grad);
  const KernelGuard guard(grad);
  Tensor grad_x = empty_result(grad), grad_y = empty_result(grad);
  if (grad.numel() == 0) return {grad_x, grad_y};
  const Tensor dense_grad = grad.contiguous(grad.suggest_memory_format());
  const auto [type, count] = elements_of(grad.scalar_type());
  const ElementwiseArgs<MyOpGradient> args{
      .inputs = {dense_grad.const_data_ptr()},
      .outputs = {grad_x.mutable_data_ptr(), grad_y.mutable_data_ptr()},
      .numel = grad.numel() * count,
      .type = type,
  };
  LLTM_JIT_RUN(grad, args, my_op_backward_cpu, launch_my_op_backward);
  return {grad_x, grad_y};
}

// ------------------------------------------ meta and the ATen formula: other devices, vmap, jvp --

Tensor my_op_meta(const Tensor& x, const Tensor& y) {
  check_inputs(x, y);
  return empty_result(x);
}

Gradients my_op_backward_meta(const Tensor& grad) {
  check_gradient(grad);
  return {empty_result(grad), empty_result(grad)};
}

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
  static const auto op = find_op<Tensor(const Tensor&, const Tensor&)>("lltm_jit::my_op");
  return op.call(x, y);
}

Gradients call_my_op_backward(const Tensor& grad) {
  static const auto op = find_op<Gradients(const Tensor&)>("lltm_jit::my_op_backward");
  return op.call(grad);
}

struct MyOpBackward : public OpNode {
  std::string name() const override { return "MyOpBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return variable_list(2);
    auto [grad_x, grad_y] = call_my_op_backward(grads[0]);
    return {task_should_compute_output(0) ? grad_x : Tensor(),
            task_should_compute_output(1) ? grad_y : Tensor()};
  }
};

Tensor my_op_autograd(const Tensor& x, const Tensor& y) {
  if (any_forward_grad(x, y)) return my_op_aten(x, y);
  const bool requires_grad = torch::autograd::compute_requires_grad(x, y);
  Tensor z = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call_my_op(x, y);
  }();
  if (requires_grad) {
    auto node = make_node<MyOpBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, y));
    torch::autograd::set_history(z, node);
  }
  return z;
}

Gradients my_op_backward_autograd(const Tensor& grad) {
  if (torch::autograd::compute_requires_grad(grad) || any_forward_grad(grad)) {
    return my_op_backward_aten(grad);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_my_op_backward(grad);
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_my_op(OpLibraries& libraries) {
  libraries.cpu.impl("my_op", TORCH_FN(my_op_kernel));
  libraries.cpu.impl("my_op_backward", TORCH_FN(my_op_backward_kernel));
#ifdef LLTM_JIT_CUDA
  libraries.cuda.impl("my_op", TORCH_FN(my_op_kernel));
  libraries.cuda.impl("my_op_backward", TORCH_FN(my_op_backward_kernel));
#endif
  libraries.meta.impl("my_op", TORCH_FN(my_op_meta));
  libraries.meta.impl("my_op_backward", TORCH_FN(my_op_backward_meta));
  for (auto* library : {&libraries.any_device, &libraries.vmap}) {
    library->impl("my_op", TORCH_FN(my_op_aten));
    library->impl("my_op_backward", TORCH_FN(my_op_backward_aten));
  }
  libraries.autograd.impl("my_op", TORCH_FN(my_op_autograd));
  libraries.autograd.impl("my_op_backward", TORCH_FN(my_op_backward_autograd));
}

void bind_my_op(pybind11::module_& m) {
  m.def("my_op", &call_my_op, pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace lltm_jit
