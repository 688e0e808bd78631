// LLTM cell: checks, shapes on the meta device, registration. The maths is in lltm_math.h, what runs
// on CPU and CUDA in lltm_kernels.cpp, autograd in lltm_autograd.cpp.
#include <ATen/ops/empty.h>

#include "core/cuda/api.h"
#include "core/host/checks.h"
#include "rnn/lltm/lltm_ops.h"

namespace lltm_jit {

// -------------------------------------------------------------------------------------- checks --

namespace {

// Note [Dtype of the cell]
// The cell is an unbounded running sum, so with 16-bit inputs it may be kept in float32: old_cell
// is then float32 and so are new_cell and its gradient.
void check_cell_dtype(const Argument& old_cell, const Argument& input) {
  const auto dtype = input.tensor.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  if (!(half && old_cell.tensor.scalar_type() == at::kFloat)) check_same_dtype(old_cell, input);
}

}  // namespace

void check_lltm_inputs(const char* function, const Tensor& input, const Tensor& weights,
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

void check_lltm_backward(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                         const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                         const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                         const Tensor& gates, OutputMask output_mask) {
  const char* function = "lltm_cell_backward";
  check_lltm_inputs(function, input, weights, bias, old_h, old_cell);
  const auto batch_size = old_h.sym_size(0), hidden_size = old_h.sym_size(1);
  const auto check = [&](const char* name, const Tensor& tensor, const char* model_name,
                         const Tensor& model, const c10::SymInt& columns, const char* shape) {
    const Argument arg{function, name, tensor}, model_arg{function, model_name, model};
    check_same_dtype(arg, model_arg);
    check_same_device(arg, model_arg);
    check_shape(arg, {batch_size, columns}, shape);
  };
  const char* of_state = "[batch_size, hidden_size]";
  if (grad_h) check("grad_h", *grad_h, "old_h", old_h, hidden_size, of_state);
  if (grad_cell) check("grad_cell", *grad_cell, "old_cell", old_cell, hidden_size, of_state);
  check("new_cell", new_cell, "old_cell", old_cell, hidden_size, of_state);
  check("gates", gates, "old_h", old_h, 3 * hidden_size, "[batch_size, 3*hidden_size]");
  TORCH_CHECK(bias || !output_mask[2], function,
              "(): output_mask asks for the gradient of bias, but bias is None");
}

void check_lltm_tutorial_backward(const Tensor& grad_h, const Tensor& grad_cell,
                                  const Tensor& new_cell, const Tensor& input_gate,
                                  const Tensor& output_gate, const Tensor& candidate_cell,
                                  const Tensor& X, const Tensor& gate_weights,
                                  const Tensor& weights) {
  const char* function = "lltm_backward";
  const Argument X_arg{function, "X", X}, new_cell_arg{function, "new_cell", new_cell};
  check_floating_point(X_arg);
  check_rank(X_arg, 2, "[batch_size, hidden_size+input_size]");
  check_rank(new_cell_arg, 2, "[batch_size, hidden_size]");
  check_cell_dtype(new_cell_arg, X_arg);
  const auto batch_size = X.sym_size(0), hidden_size = new_cell.sym_size(1);
  const auto check = [&](const char* name, const Tensor& tensor, const Argument& model,
                         std::array<c10::SymInt, 2> sizes, const char* shape) {
    const Argument arg{function, name, tensor};
    check_same_dtype(arg, model);
    check_same_device(arg, X_arg);
    check_shape(arg, sizes, shape);
  };
  const char* of_state = "[batch_size, hidden_size]";
  check("new_cell", new_cell, new_cell_arg, {batch_size, hidden_size}, of_state);
  check("grad_h", grad_h, X_arg, {batch_size, hidden_size}, of_state);
  check("grad_cell", grad_cell, new_cell_arg, {batch_size, hidden_size}, of_state);
  check("input_gate", input_gate, X_arg, {batch_size, hidden_size}, of_state);
  check("output_gate", output_gate, X_arg, {batch_size, hidden_size}, of_state);
  check("candidate_cell", candidate_cell, X_arg, {batch_size, hidden_size}, of_state);
  check("gate_weights", gate_weights, X_arg, {batch_size, 3 * hidden_size},
        "[batch_size, 3*hidden_size]");
  check("weights", weights, X_arg, {3 * hidden_size, X.sym_size(1)},
        "[3*hidden_size, hidden_size+input_size]");
}

namespace {

// -------------------------------------------------------------------- meta: shapes without data --

StateAndGates lltm_cell_forward_meta(const Tensor& input, const Tensor& weights,
                                     const OptionalTensor& bias, const Tensor& old_h,
                                     const Tensor& old_cell) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
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
  check_lltm_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                      output_mask);
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

StateAndGates lltm_cell_forward_aten(const Tensor& input, const Tensor& weights,
                                     const OptionalTensor& bias, const Tensor& old_h,
                                     const Tensor& old_cell) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  return lltm_forward_aten(input, weights, bias, old_h, old_cell);
}

Gradients lltm_cell_backward_aten(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                  const Tensor& input, const Tensor& weights,
                                  const OptionalTensor& bias, const Tensor& old_h,
                                  const Tensor& old_cell, const Tensor& new_cell,
                                  const Tensor& gates, OutputMask output_mask) {
  check_lltm_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                      output_mask);
  return lltm_backward_aten(grad_h, grad_cell, input, weights, bias, old_h, old_cell, output_mask);
}

}  // namespace

State lltm_cell_aten(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const Tensor& old_h, const Tensor& old_cell) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  auto [new_h, new_cell, gates] = lltm_forward_aten(input, weights, bias, old_h, old_cell);
  return {new_h, new_cell};
}

void lltm_cell_check(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const Tensor& old_h, const Tensor& old_cell) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
}

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
  libraries.any_device.impl("lltm_cell", TORCH_FN(lltm_cell_aten));
  for (auto* library : {&libraries.any_device, &libraries.vmap}) {
    library->impl("lltm_cell_forward", TORCH_FN(lltm_cell_forward_aten));
    library->impl("lltm_cell_backward", TORCH_FN(lltm_cell_backward_aten));
  }
  libraries.composite.impl("lltm_cell_aten", TORCH_FN(lltm_cell_aten));
  libraries.composite.impl("lltm_cell_check", TORCH_FN(lltm_cell_check));
  register_lltm_autograd(libraries);
}

}  // namespace lltm_jit
