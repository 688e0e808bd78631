// sigmoid: checks, allocation, autograd and registration.
#include "sigmoid/sigmoid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>

#include "core/autograd.h"
#include "core/checks.h"
#include "core/device.h"
#include "core/library.h"

namespace lltm_jit {
namespace {

using at::Tensor;

Tensor empty_result(const Tensor& x) {
  return at::empty_symint(x.sym_sizes(), x.options(), x.suggest_memory_format());
}

void check_backward(const Tensor& grad, const Tensor& s) {
  const Argument grad_arg{"sigmoid_backward", "grad", grad}, s_arg{"sigmoid_backward", "s", s};
  check_floating_point(s_arg);
  check_same_dtype(grad_arg, s_arg);
  check_same_device(grad_arg, s_arg);
  check_shape(grad_arg, s.sym_sizes(), "s.shape");
}

// --------------------------------------------------------------------- kernels on CPU and CUDA --

Tensor sigmoid_kernel(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  const KernelGuard guard(x);
  Tensor s = empty_result(x);
  if (s.numel() == 0) return s;
  const Tensor dense_x = x.contiguous(x.suggest_memory_format());
  const ElementwiseArgs<Sigmoid> args{
      .inputs = {dense_x.const_data_ptr()},
      .outputs = {s.mutable_data_ptr()},
      .numel = s.numel(),
      .type = floating_type(x.scalar_type()),
  };
  LLTM_JIT_RUN(x, args, sigmoid_forward_cpu, launch_sigmoid_forward);
  return s;
}

Tensor sigmoid_backward_kernel(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  const KernelGuard guard(s);
  Tensor grad_x = empty_result(s);
  if (s.numel() == 0) return grad_x;
  const auto format = s.suggest_memory_format();
  const Tensor dense_grad = grad.contiguous(format), dense_s = s.contiguous(format);
  const ElementwiseArgs<SigmoidGradient> args{
      .inputs = {dense_grad.const_data_ptr(), dense_s.const_data_ptr()},
      .outputs = {grad_x.mutable_data_ptr()},
      .numel = s.numel(),
      .type = floating_type(s.scalar_type()),
  };
  LLTM_JIT_RUN(s, args, sigmoid_backward_cpu, launch_sigmoid_backward);
  return grad_x;
}

// ------------------------------------------ meta and the ATen formula: other devices, vmap, jvp --

Tensor sigmoid_meta(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  return empty_result(x);
}

Tensor sigmoid_backward_meta(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  return empty_result(s);
}

Tensor sigmoid_aten(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  return at::sigmoid(x);
}

Tensor sigmoid_backward_aten(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  return grad * (1 - s) * s;
}

// -------------------------------------------------------------------------- dispatcher, autograd --

Tensor call_sigmoid(const Tensor& x) {
  static const auto op = find_op<Tensor(const Tensor&)>("lltm_jit::sigmoid");
  return op.call(x);
}

Tensor call_sigmoid_backward(const Tensor& grad, const Tensor& s) {
  static const auto op =
      find_op<Tensor(const Tensor&, const Tensor&)>("lltm_jit::sigmoid_backward");
  return op.call(grad, s);
}

// Differentiable as it stands, since both of its parts are.
Tensor d_sigmoid(const Tensor& z) {
  check_floating_point({"d_sigmoid", "z", z});
  const Tensor s = call_sigmoid(z);
  return at::rsub(s, 1) * s;
}

struct SigmoidBackward : public OpNode {
  SavedVariable s;

  std::string name() const override { return "SigmoidBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return variable_list(1);
    return {call_sigmoid_backward(grads[0], s.unpack(getptr()))};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    s.reset_data();
  }
};

Tensor sigmoid_autograd(const Tensor& x) {
  if (any_forward_grad(x)) return sigmoid_aten(x);
  const bool requires_grad = torch::autograd::compute_requires_grad(x);
  Tensor s = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call_sigmoid(x);
  }();
  if (requires_grad) {
    auto node = make_node<SigmoidBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    torch::autograd::set_history(s, node);
    node->s = SavedVariable(s, /*is_output=*/true);
  }
  return s;
}

Tensor sigmoid_backward_autograd(const Tensor& grad, const Tensor& s) {
  if (torch::autograd::compute_requires_grad(grad, s) || any_forward_grad(grad, s)) {
    return sigmoid_backward_aten(grad, s);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_sigmoid_backward(grad, s);
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_sigmoid(OpLibraries& libraries) {
  libraries.cpu.impl("sigmoid", TORCH_FN(sigmoid_kernel));
  libraries.cpu.impl("sigmoid_backward", TORCH_FN(sigmoid_backward_kernel));
#ifdef LLTM_JIT_CUDA
  libraries.cuda.impl("sigmoid", TORCH_FN(sigmoid_kernel));
  libraries.cuda.impl("sigmoid_backward", TORCH_FN(sigmoid_backward_kernel));
#endif
  libraries.meta.impl("sigmoid", TORCH_FN(sigmoid_meta));
  libraries.meta.impl("sigmoid_backward", TORCH_FN(sigmoid_backward_meta));
  for (auto* library : {&libraries.any_device, &libraries.vmap}) {
    library->impl("sigmoid", TORCH_FN(sigmoid_aten));
    library->impl("sigmoid_backward", TORCH_FN(sigmoid_backward_aten));
  }
  for (auto* library : {&libraries.composite, &libraries.vmap}) {
    library->impl("d_sigmoid", TORCH_FN(d_sigmoid));
  }
  libraries.autograd.impl("sigmoid", TORCH_FN(sigmoid_autograd));
  libraries.autograd.impl("sigmoid_backward", TORCH_FN(sigmoid_backward_autograd));
}

void bind_sigmoid(pybind11::module_& m) {
  using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("sigmoid", &call_sigmoid, release_gil());
  m.def("d_sigmoid", &d_sigmoid, release_gil());
}

}  // namespace lltm_jit
