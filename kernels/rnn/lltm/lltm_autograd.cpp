// LLTM cell: how calls reach the dispatcher, autograd and autocast.
#include <ATen/autocast_mode.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>

#include "core/host/autograd.h"
#include "rnn/lltm/lltm_ops.h"

namespace lltm_jit {
namespace {

// ------------------------------------------------------------------------------------ dispatcher --

State call_cell(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                const Tensor& old_h, const Tensor& old_cell) {
  static const auto op = find_op<CellSignature>("lltm_jit::lltm_cell");
  return op.call(input, weights, bias, old_h, old_cell);
}

StateAndGates call_forward(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                           const Tensor& old_h, const Tensor& old_cell) {
  static const auto op = find_op<ForwardSignature>("lltm_jit::lltm_cell_forward");
  return op.call(input, weights, bias, old_h, old_cell);
}

Gradients call_backward(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                        const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                        const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                        const Tensor& gates, OutputMask output_mask) {
  static const auto op = find_op<BackwardSignature>("lltm_jit::lltm_cell_backward");
  return op.call(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                 output_mask);
}

// -------------------------------------------------------------------------------------- autograd --

struct LltmCellBackward : public OpNode {
  std::string name() const override { return "LltmCellBackward"; }

  variable_list backward(const variable_list& grads) override {
    OutputMask mask;
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = task_should_compute_output(i);
    auto [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] =
        call_backward(as_optional(grads[0]), as_optional(grads[1]), saved(0), saved(1),
                      as_optional(saved(2)), saved(3), saved(4), saved(5), saved(6), mask);
    return {grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell};
  }
};

State lltm_cell_autograd(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                         const Tensor& old_h, const Tensor& old_cell) {
  if (any_forward_grad(input, weights, bias, old_h, old_cell)) {
    return lltm_cell_aten(input, weights, bias, old_h, old_cell);
  }
  if (!compute_requires_grad(input, weights, bias, old_h, old_cell)) {
    return below_autograd(call_cell, input, weights, bias, old_h, old_cell);
  }
  auto [new_h, new_cell, gates] =
      below_autograd(call_forward, input, weights, bias, old_h, old_cell);
  auto node =
      record<LltmCellBackward>({new_h, new_cell}, input, weights, as_tensor(bias), old_h, old_cell);
  for (const Tensor& tensor : {input, weights, as_tensor(bias), old_h, old_cell})
    node->save(tensor);
  node->save(new_cell, /*is_output=*/true);
  node->save(gates);
  return {new_h, new_cell};
}

// Reached with inputs that need a gradient at an outer level of torch.func, where the forward pass of
// the inner level is itself differentiated.
StateAndGates lltm_cell_forward_autograd(const Tensor& input, const Tensor& weights,
                                         const OptionalTensor& bias, const Tensor& old_h,
                                         const Tensor& old_cell) {
  if (torch::autograd::compute_requires_grad(input, weights, bias, old_h, old_cell) ||
      any_forward_grad(input, weights, bias, old_h, old_cell)) {
    return lltm_forward_aten(input, weights, bias, old_h, old_cell);
  }
  return below_autograd(call_forward, input, weights, bias, old_h, old_cell);
}

Gradients lltm_cell_backward_autograd(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                      const Tensor& input, const Tensor& weights,
                                      const OptionalTensor& bias, const Tensor& old_h,
                                      const Tensor& old_cell, const Tensor& new_cell,
                                      const Tensor& gates, OutputMask output_mask) {
  // Note [Second derivatives]
  // new_cell and gates are functions of the inputs, so a derivative of the gradients has to see
  // how they came about: the ATen formula computes them again from the inputs.
  if (torch::autograd::compute_requires_grad(grad_h, grad_cell, input, weights, bias, old_h,
                                             old_cell) ||
      any_forward_grad(grad_h, grad_cell, input, weights, bias, old_h, old_cell)) {
    return lltm_backward_aten(grad_h, grad_cell, input, weights, bias, old_h, old_cell,
                              output_mask);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                       output_mask);
}

// -------------------------------------------------------------------------------------- autocast --

// Casts what addmm casts; a float32 cell stays: see Note [Dtype of the cell]. Under vmap, too, which
// the dispatcher comes to before autocast.
template <auto* cell>
auto autocast(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
              const Tensor& old_h, const Tensor& old_cell) {
  const auto device = input.defined() ? input.device().type() : c10::DeviceType::Meta;
  const bool enabled =  // before the guard, which turns it off
      at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (!enabled) return cell(input, weights, bias, old_h, old_cell);
  const auto dtype = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const Tensor& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  };
  return cell(cast(input), cast(weights), bias ? OptionalTensor(cast(*bias)) : bias, cast(old_h),
              old_cell.scalar_type() == at::kFloat ? old_cell : cast(old_cell));
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_lltm_autograd(OpLibraries& libraries) {
  libraries.autograd.impl("lltm_cell", TORCH_FN(lltm_cell_autograd));
  libraries.autograd.impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_autograd));
  libraries.autograd.impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_autograd));
  for (auto* library : {&libraries.autocast_cpu, &libraries.autocast_cuda}) {
    library->impl("lltm_cell", TORCH_FN((autocast<call_cell>)));
  }
  libraries.vmap.impl("lltm_cell", TORCH_FN((autocast<lltm_cell_aten>)));
  for (auto* library : {&libraries.autocast_cpu, &libraries.autocast_cuda, &libraries.vmap}) {
    library->impl("lltm_cell_aten", TORCH_FN((autocast<lltm_cell_aten>)));
    library->impl("lltm_cell_check", TORCH_FN((autocast<lltm_cell_check>)));
  }
}

void bind_lltm(pybind11::module_& m) {
  using pybind11::arg;
  using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("lltm_cell", &call_cell, release_gil(), arg("input"), arg("weights"), arg("bias"),
        arg("old_h"), arg("old_cell"));
  m.def("lltm_forward", &lltm_tutorial_forward, release_gil(), arg("input"), arg("weights"),
        arg("bias"), arg("old_h"), arg("old_cell"));
  m.def("lltm_backward", &lltm_tutorial_backward, release_gil(), arg("grad_h"), arg("grad_cell"),
        arg("new_cell"), arg("input_gate"), arg("output_gate"), arg("candidate_cell"), arg("X"),
        arg("gate_weights"), arg("weights"));
}

}  // namespace lltm_jit
