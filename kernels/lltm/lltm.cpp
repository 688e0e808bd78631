// LLTM cell: checks, allocation, autograd and registration. The maths is in lltm_math.h.
#include "lltm/lltm.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>

#include "core/autograd.h"
#include "core/checks.h"
#include "core/device.h"
#include "core/library.h"
#include "lltm/lltm_aten.h"

namespace lltm_jit {
namespace {

using State = std::tuple<Tensor, Tensor>;
using StateAndGates = std::tuple<Tensor, Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using OutputMask = std::array<bool, 5>;

using CellSignature = State(const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                            const Tensor&);
using ForwardSignature = StateAndGates(const Tensor&, const Tensor&, const OptionalTensor&,
                                       const Tensor&, const Tensor&);
using BackwardSignature = Gradients(const OptionalTensor&, const OptionalTensor&, const Tensor&,
                                    const Tensor&, const OptionalTensor&, const Tensor&,
                                    const Tensor&, const Tensor&, const Tensor&, OutputMask);

// -------------------------------------------------------------------------------------- checks --

// Note [Dtype of the cell]
// The cell is an unbounded running sum, so with 16-bit inputs it may be kept in float32: old_cell
// is then float32 and so are new_cell and its gradient.
void check_cell_dtype(const Argument& old_cell, const Argument& input) {
  const auto dtype = input.tensor.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  if (!(half && old_cell.tensor.scalar_type() == at::kFloat)) check_same_dtype(old_cell, input);
}

void check_inputs(const char* function, const Tensor& input, const Tensor& weights,
                  const OptionalTensor& bias, const Tensor& old_h, const Tensor& old_cell) {
  const Argument input_arg{function, "input", input};
  const Argument weights_arg{function, "weights", weights};
  const Argument old_h_arg{function, "old_h", old_h};
  const Argument old_cell_arg{function, "old_cell", old_cell};

  check_floating_point(input_arg);
  check_same_dtype(weights_arg, input_arg);
  check_same_dtype(old_h_arg, input_arg);
  check_cell_dtype(old_cell_arg, input_arg);
  check_same_device(weights_arg, input_arg);
  check_same_device(old_h_arg, input_arg);
  check_same_device(old_cell_arg, input_arg);

  check_rank(input_arg, 2, "[batch_size, input_size]");
  check_rank(old_h_arg, 2, "[batch_size, hidden_size]");
  const auto batch_size = input.sym_size(0), input_size = input.sym_size(1);
  const auto hidden_size = old_h.sym_size(1);
  check_shape(old_h_arg, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  check_shape(old_cell_arg, {batch_size, hidden_size}, "[batch_size, hidden_size]");
  check_shape(weights_arg, {3 * hidden_size, hidden_size + input_size},
              "[3*hidden_size, hidden_size+input_size]");
  if (bias) {
    const Argument bias_arg{function, "bias", *bias};
    check_same_dtype(bias_arg, input_arg);
    check_same_device(bias_arg, input_arg);
    if (bias->dim() == 2) {
      check_shape(bias_arg, {1, 3 * hidden_size}, "[1, 3*hidden_size]");
    } else {
      check_shape(bias_arg, {3 * hidden_size}, "[3*hidden_size]");
    }
  }
}

// --------------------------------------------------------------------- kernels on CPU and CUDA --

StateAndGates forward(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                      const Tensor& old_h, const Tensor& old_cell, bool save_gates) {
  check_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  const KernelGuard guard(input);
  const Tensor X = at::cat({old_h, input}, 1);
  Tensor gates = bias ? at::addmm(*bias, X, weights.t()) : at::mm(X, weights.t());
  Tensor new_h = at::empty(old_h.sizes(), input.options());
  Tensor new_cell = at::empty(old_cell.sizes(), old_cell.options());
  if (new_h.numel() == 0) return {new_h, new_cell, gates};

  const Tensor dense_cell = old_cell.contiguous();
  const LltmForwardArgs args{
      .gates = gates.mutable_data_ptr(),
      .old_cell = dense_cell.const_data_ptr(),
      .new_h = new_h.mutable_data_ptr(),
      .new_cell = new_cell.mutable_data_ptr(),
      .batch_size = input.size(0),
      .hidden_size = old_h.size(1),
      .type = floating_type(input.scalar_type()),
      .cell_type = floating_type(old_cell.scalar_type()),
      .save_gates = save_gates,
  };
  LLTM_JIT_RUN(input, args, lltm_forward_cpu, launch_lltm_forward);
  return {new_h, new_cell, gates};
}

State lltm_cell_kernel(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                       const Tensor& old_h, const Tensor& old_cell) {
  auto [new_h, new_cell, gates] = forward(input, weights, bias, old_h, old_cell, false);
  return {new_h, new_cell};
}

StateAndGates lltm_cell_forward_kernel(const Tensor& input, const Tensor& weights,
                                       const OptionalTensor& bias, const Tensor& old_h,
                                       const Tensor& old_cell) {
  return forward(input, weights, bias, old_h, old_cell, true);
}

OptionalTensor dense(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

const void* data_or_null(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr() : nullptr;
}

Gradients lltm_cell_backward_kernel(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                    const Tensor& input, const Tensor& weights,
                                    const OptionalTensor& bias, const Tensor& old_h,
                                    const Tensor& old_cell, const Tensor& new_cell,
                                    const Tensor& gates, OutputMask output_mask) {
  const KernelGuard guard(input);
  const int64_t batch_size = input.size(0), hidden_size = old_h.size(1);
  Tensor grad_pre = at::empty(gates.sizes(), gates.options());
  Tensor grad_old_cell = at::empty(new_cell.sizes(), new_cell.options());
  if (new_cell.numel() > 0) {
    const OptionalTensor dense_grad_h = dense(grad_h), dense_grad_cell = dense(grad_cell);
    const Tensor dense_gates = gates.contiguous(), dense_new_cell = new_cell.contiguous();
    const LltmBackwardArgs args{
        .grad_h = data_or_null(dense_grad_h),
        .grad_cell = data_or_null(dense_grad_cell),
        .gates = dense_gates.const_data_ptr(),
        .new_cell = dense_new_cell.const_data_ptr(),
        .grad_pre = grad_pre.mutable_data_ptr(),
        .grad_old_cell = grad_old_cell.mutable_data_ptr(),
        .batch_size = batch_size,
        .hidden_size = hidden_size,
        .type = floating_type(input.scalar_type()),
        .cell_type = floating_type(new_cell.scalar_type()),
    };
    LLTM_JIT_RUN(input, args, lltm_backward_cpu, launch_lltm_backward);
  }

  // Without the concatenation of the forward pass: each block of columns is a product of its own.
  Gradients grads;
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_cell_out] = grads;
  if (output_mask[0]) grad_input = at::mm(grad_pre, weights.slice(1, hidden_size));
  if (output_mask[1]) {
    grad_weights = at::empty(weights.sizes(), weights.options());
    Tensor of_old_h = grad_weights.slice(1, 0, hidden_size);
    Tensor of_input = grad_weights.slice(1, hidden_size);
    at::mm_out(of_old_h, grad_pre.t(), old_h);
    at::mm_out(of_input, grad_pre.t(), input);
  }
  if (output_mask[2]) grad_bias = grad_pre.sum(0, /*keepdim=*/bias->dim() == 2);
  if (output_mask[3]) grad_old_h = at::mm(grad_pre, weights.slice(1, 0, hidden_size));
  if (output_mask[4]) grad_cell_out = grad_old_cell;
  return grads;
}

// -------------------------------------------------------------------- meta: shapes without data --

StateAndGates lltm_cell_forward_meta(const Tensor& input, const Tensor& weights,
                                     const OptionalTensor& bias, const Tensor& old_h,
                                     const Tensor& old_cell) {
  check_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  return {at::empty_symint(old_h.sym_sizes(), old_h.options()),
          at::empty_symint(old_cell.sym_sizes(), old_cell.options()),
          at::empty_symint({old_h.sym_size(0), 3 * old_h.sym_size(1)}, old_h.options())};
}

State lltm_cell_meta(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const Tensor& old_h, const Tensor& old_cell) {
  auto [new_h, new_cell, gates] = lltm_cell_forward_meta(input, weights, bias, old_h, old_cell);
  return {new_h, new_cell};
}

Gradients lltm_cell_backward_meta(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                  const Tensor& input, const Tensor& weights,
                                  const OptionalTensor& bias, const Tensor& old_h,
                                  const Tensor& old_cell, const Tensor& new_cell,
                                  const Tensor& gates, OutputMask output_mask) {
  const auto like = [](const Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  Gradients grads;
  if (output_mask[0]) std::get<0>(grads) = like(input);
  if (output_mask[1]) std::get<1>(grads) = like(weights);
  if (output_mask[2]) std::get<2>(grads) = like(*bias);
  if (output_mask[3]) std::get<3>(grads) = like(old_h);
  if (output_mask[4]) std::get<4>(grads) = like(old_cell);
  return grads;
}

// ------------------------------------------------- ATen formula: other devices, vmap and jvp ----

State lltm_cell_aten(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const Tensor& old_h, const Tensor& old_cell) {
  check_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  auto [new_h, new_cell, gates] = lltm_forward_aten(input, weights, bias, old_h, old_cell);
  return {new_h, new_cell};
}

StateAndGates lltm_cell_forward_aten(const Tensor& input, const Tensor& weights,
                                     const OptionalTensor& bias, const Tensor& old_h,
                                     const Tensor& old_cell) {
  check_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  return lltm_forward_aten(input, weights, bias, old_h, old_cell);
}

Gradients lltm_cell_backward_aten(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                  const Tensor& input, const Tensor& weights,
                                  const OptionalTensor& bias, const Tensor& old_h,
                                  const Tensor& old_cell, const Tensor&, const Tensor&,
                                  OutputMask output_mask) {
  return lltm_backward_aten(grad_h, grad_cell, input, weights, bias, old_h, old_cell, output_mask);
}

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

struct LltmCellBackward : public Node {
  SavedVariable input, weights, bias, old_h, old_cell, new_cell, gates;

  std::string name() const override { return "LltmCellBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined() && !grads[1].defined()) return variable_list(5);
    OutputMask mask;
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = task_should_compute_output(i);
    auto [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] =
        call_backward(as_optional(grads[0]), as_optional(grads[1]), input.unpack(),
                      weights.unpack(), as_optional(bias.unpack()), old_h.unpack(),
                      old_cell.unpack(), new_cell.unpack(getptr()), gates.unpack(), mask);
    return {grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto* saved : {&input, &weights, &bias, &old_h, &old_cell, &new_cell, &gates}) {
      saved->reset_data();
    }
  }
};

State lltm_cell_autograd(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                         const Tensor& old_h, const Tensor& old_cell) {
  if (any_forward_grad(input, weights, bias, old_h, old_cell)) {
    return lltm_cell_aten(input, weights, bias, old_h, old_cell);
  }
  if (!torch::autograd::compute_requires_grad(input, weights, bias, old_h, old_cell)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call_cell(input, weights, bias, old_h, old_cell);
  }
  auto node = make_node<LltmCellBackward>();
  node->set_next_edges(
      torch::autograd::collect_next_edges(input, weights, as_tensor(bias), old_h, old_cell));
  node->input = SavedVariable(input, /*is_output=*/false);
  node->weights = SavedVariable(weights, false);
  node->bias = SavedVariable(as_tensor(bias), false);
  node->old_h = SavedVariable(old_h, false);
  node->old_cell = SavedVariable(old_cell, false);
  auto [new_h, new_cell, gates] = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call_forward(input, weights, bias, old_h, old_cell);
  }();
  torch::autograd::set_history(new_h, node);
  torch::autograd::set_history(new_cell, node);
  node->new_cell = SavedVariable(new_cell, /*is_output=*/true);
  node->gates = SavedVariable(gates, false);
  return {new_h, new_cell};
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

// Casts what addmm casts; a float32 cell stays: see Note [Dtype of the cell].
template <c10::DeviceType device>
State lltm_cell_autocast(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                         const Tensor& old_h, const Tensor& old_cell) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto dtype = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const Tensor& tensor) {
    return at::autocast::cached_cast(dtype, tensor, device);
  };
  return call_cell(cast(input), cast(weights), bias ? OptionalTensor(cast(*bias)) : bias,
                   cast(old_h), old_cell.scalar_type() == at::kFloat ? old_cell : cast(old_cell));
}

}  // namespace

// ---------------------------------------------------------------------------------- registration --

void register_lltm(OpLibraries& libraries) {
  libraries.cpu.impl("lltm_cell", TORCH_FN(lltm_cell_kernel));
  libraries.cpu.impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_kernel));
  libraries.cpu.impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_kernel));
#ifdef LLTM_JIT_CUDA
  libraries.cuda.impl("lltm_cell", TORCH_FN(lltm_cell_kernel));
  libraries.cuda.impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_kernel));
  libraries.cuda.impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_kernel));
#endif
  libraries.meta.impl("lltm_cell", TORCH_FN(lltm_cell_meta));
  libraries.meta.impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_meta));
  libraries.meta.impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_meta));
  for (auto* library : {&libraries.any_device, &libraries.vmap}) {
    library->impl("lltm_cell", TORCH_FN(lltm_cell_aten));
    library->impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_aten));
    library->impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_aten));
  }
  libraries.composite.impl("lltm_cell_aten", TORCH_FN(lltm_cell_aten));
  libraries.autograd.impl("lltm_cell", TORCH_FN(lltm_cell_autograd));
  libraries.autograd.impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_autograd));
  libraries.autocast_cpu.impl("lltm_cell", TORCH_FN(lltm_cell_autocast<c10::DeviceType::CPU>));
  libraries.autocast_cuda.impl("lltm_cell", TORCH_FN(lltm_cell_autocast<c10::DeviceType::CUDA>));
}

void bind_lltm(pybind11::module_& m) {
  using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("lltm_cell", &call_cell, release_gil());
  m.def("lltm_forward", &lltm_tutorial_forward, release_gil());
  m.def("lltm_backward", &lltm_tutorial_backward, release_gil());
}

}  // namespace lltm_jit
