// sigmoid: checks, autograd and registration.
#include "basic/sigmoid/sigmoid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/utils/pybind.h>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/elementwise.h"
#include "core/host/library.h"

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

// ------------------------------------------------------- kernels on CPU and CUDA, shapes on meta --

Tensor sigmoid_kernel(const Tensor& x) {
  check_floating_point({"sigmoid", "x", x});
  auto [s] = elementwise<Sigmoid>({x});
  return s;
}

Tensor sigmoid_backward_kernel(const Tensor& grad, const Tensor& s) {
  check_backward(grad, s);
  auto [grad_x] = elementwise<SigmoidGradient>({s, grad});
  return grad_x;
}

// ----------------------------------------------------- the ATen formula: other devices, vmap, jvp --

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
  static const auto op = find_op<decltype(call_sigmoid)>("lltm_jit::sigmoid");
  return op.call(x);
}

Tensor call_sigmoid_backward(const Tensor& grad, const Tensor& s) {
  static const auto op = find_op<decltype(call_sigmoid_backward)>("lltm_jit::sigmoid_backward");
  return op.call(grad, s);
}

// Differentiable as it stands, since both of its parts are.
Tensor d_sigmoid(const Tensor& z) {
  check_floating_point({"d_sigmoid", "z", z});
  const Tensor s = call_sigmoid(z);
  return at::rsub(s, 1) * s;
}

struct SigmoidBackward : public OpNode {
  std::string name() const override { return "SigmoidBackward"; }
  variable_list backward(const variable_list& grads) override {
    return {call_sigmoid_backward(grads[0], saved(0))};
  }
};

Tensor sigmoid_autograd(const Tensor& x) {
  if (any_forward_grad(x)) return sigmoid_aten(x);
  const Tensor s = below_autograd(call_sigmoid, x);
  if (compute_requires_grad(x)) record<SigmoidBackward>({s}, x)->save(s, /*is_output=*/true);
  return s;
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_sigmoid(OpLibraries& libraries) {
  libraries.add<sigmoid_kernel, sigmoid_aten, sigmoid_autograd>("sigmoid");
  libraries.add<sigmoid_backward_kernel, sigmoid_backward_aten,
                ByFormula<call_sigmoid_backward, sigmoid_backward_aten>::autograd>(
      "sigmoid_backward");
  for (auto* library : {&libraries.composite, &libraries.vmap}) {
    library->impl("d_sigmoid", TORCH_FN(d_sigmoid));
  }
}

void bind_sigmoid(pybind11::module_& m) {
  using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("sigmoid", &call_sigmoid, release_gil());
  m.def("d_sigmoid", &d_sigmoid, release_gil());
}

}  // namespace lltm_jit
