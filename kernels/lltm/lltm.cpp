// LLTM cell: checks, allocation, choice of kernels, registration. The maths is in lltm_math.h,
// autograd in lltm_autograd.cpp.
#include "lltm/lltm.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "core/checks.h"
#include "core/device.h"
#include "core/library.h"
#include "lltm/lltm_ops.h"

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

namespace {

void check_backward(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
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

// --------------------------------------------------------------------- kernels on CPU and CUDA --

// Note [Own products or the library's]
// Below these sizes (of batch_size * hidden_size * width) the kernels of lltm_gemm_cuda.cu beat the
// library's GEMM with the launches around it: they have one launch, and tiles enough for every SM.
// Above them the library's tensor cores and larger tiles win. See README.md.
#ifdef LLTM_JIT_CUDA
struct Limits {
  int64_t cell, products;
};

Limits own_product_limits(at::ScalarType dtype) {
  constexpr int64_t kSmall = 16 * 512 * 768, kMedium = 64 * 512 * 768, kLarge = 128 * 1024 * 2048;
  if (dtype == at::kFloat) return {2 * kLarge, 2 * kMedium};
  if (dtype == at::kDouble) return {kSmall, kSmall};
  return {2 * kMedium, kSmall};
}

Tensor dense_rows(const Tensor& matrix) {
  return matrix.stride(1) == 1 || matrix.size(1) <= 1 ? matrix : matrix.contiguous();
}

// Whether rows start at multiples of the kernels' widest access.
bool rows_aligned(const Tensor& matrix) {
  constexpr int64_t kAccess = 16;
  return reinterpret_cast<uintptr_t>(matrix.const_data_ptr()) % kAccess == 0 &&
         matrix.stride(0) * matrix.element_size() % kAccess == 0;
}

// The inputs as the kernels with their own products take them.
struct ProductInputs {
  Tensor input, weights, old_h;
  bool aligned;
  ProductInputs(const Tensor& input_, const Tensor& weights_, const Tensor& old_h_)
      : input(dense_rows(input_)), weights(dense_rows(weights_)), old_h(dense_rows(old_h_)) {
    aligned = rows_aligned(input) && rows_aligned(weights) && rows_aligned(old_h) &&
              old_h.size(1) * old_h.element_size() % 16 == 0 &&
              input.size(1) * input.element_size() % 16 == 0;
  }
};

bool fits_own_products(const ProductInputs& inputs, int64_t limit) {
  const int64_t work = inputs.old_h.numel() * inputs.weights.size(1);
  return work <= limit && (inputs.aligned || inputs.input.element_size() > 2) &&
         lltm_products_fit_device();
}

StateAndGates forward_own(const ProductInputs& inputs, const OptionalTensor& bias,
                          const Tensor& old_cell, bool save_gates) {
  const auto& [input, weights, old_h, aligned] = inputs;
  Tensor new_h = at::empty(old_h.sizes(), input.options());
  Tensor new_cell = at::empty(old_cell.sizes(), old_cell.options());
  Tensor gates;
  if (save_gates) gates = at::empty({old_h.size(0), 3 * old_h.size(1)}, input.options());
  const Tensor dense_cell = old_cell.contiguous();
  const Tensor dense_bias = bias ? bias->contiguous() : Tensor();
  const LltmCellArgs args{
      .input = input.const_data_ptr(),
      .weights = weights.const_data_ptr(),
      .bias = bias ? dense_bias.const_data_ptr() : nullptr,
      .old_h = old_h.const_data_ptr(),
      .old_cell = dense_cell.const_data_ptr(),
      .new_h = new_h.mutable_data_ptr(),
      .new_cell = new_cell.mutable_data_ptr(),
      .gates = save_gates ? gates.mutable_data_ptr() : nullptr,
      .batch_size = input.size(0),
      .input_size = input.size(1),
      .hidden_size = old_h.size(1),
      .input_stride = input.stride(0),
      .weights_stride = weights.stride(0),
      .old_h_stride = old_h.stride(0),
      .type = floating_type(input.scalar_type()),
      .cell_type = floating_type(old_cell.scalar_type()),
      .aligned = aligned,
  };
  C10_CUDA_CHECK(launch_lltm_cell(args, c10::cuda::getCurrentCUDAStream()));
  return {new_h, new_cell, gates};
}
#endif

StateAndGates forward(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                      const Tensor& old_h, const Tensor& old_cell, bool save_gates) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  const KernelGuard guard(input);
#ifdef LLTM_JIT_CUDA
  if (input.is_cuda() && old_h.numel() > 0) {
    const ProductInputs inputs(input, weights, old_h);
    if (fits_own_products(inputs, own_product_limits(input.scalar_type()).cell)) {
      return forward_own(inputs, bias, old_cell, save_gates);
    }
  }
#endif
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

#ifdef LLTM_JIT_CUDA
Gradients products_own(const Tensor& grad_pre, const ProductInputs& inputs,
                       const OptionalTensor& bias, OutputMask output_mask) {
  const auto& [input, weights, old_h, aligned] = inputs;
  Gradients grads;
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = grads;
  const auto allocate = [&](Tensor& grad, bool wanted, at::IntArrayRef sizes) {
    if (wanted) grad = at::empty(sizes, input.options());
    return wanted ? grad.mutable_data_ptr() : nullptr;
  };
  const LltmProductsArgs args{
      .grad_pre = grad_pre.const_data_ptr(),
      .input = input.const_data_ptr(),
      .weights = weights.const_data_ptr(),
      .old_h = old_h.const_data_ptr(),
      .grad_input = allocate(grad_input, output_mask[0], input.sizes()),
      .grad_weights = allocate(grad_weights, output_mask[1], weights.sizes()),
      .grad_bias = output_mask[2] ? allocate(grad_bias, true, bias->sizes()) : nullptr,
      .grad_old_h = allocate(grad_old_h, output_mask[3], old_h.sizes()),
      .batch_size = input.size(0),
      .input_size = input.size(1),
      .hidden_size = old_h.size(1),
      .input_stride = input.stride(0),
      .weights_stride = weights.stride(0),
      .old_h_stride = old_h.stride(0),
      .type = floating_type(input.scalar_type()),
      .aligned = aligned,
  };
  C10_CUDA_CHECK(launch_lltm_products(args, c10::cuda::getCurrentCUDAStream()));
  return grads;
}
#endif

// The gradients that are products with those of the pre-activations: all but the old cell's.
Gradients products(const Tensor& grad_pre, const Tensor& input, const Tensor& weights,
                   const OptionalTensor& bias, const Tensor& old_h, OutputMask output_mask) {
#ifdef LLTM_JIT_CUDA
  if (input.is_cuda() && old_h.numel() > 0) {
    // The weights' gradient is a sum over the batch that the kernel does not divide among blocks.
    constexpr int64_t kMaxBatch = 512;
    const ProductInputs inputs(input, weights, old_h);
    if (input.size(0) <= kMaxBatch &&
        fits_own_products(inputs, own_product_limits(input.scalar_type()).products)) {
      return products_own(grad_pre, inputs, bias, output_mask);
    }
  }
#endif
  // Without the concatenation of the forward pass: each block of columns is a product of its own.
  const int64_t hidden_size = old_h.size(1);
  Gradients grads;
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = grads;
  if (output_mask[0]) grad_input = at::mm(grad_pre, weights.slice(1, hidden_size));
  if (output_mask[3]) grad_old_h = at::mm(grad_pre, weights.slice(1, 0, hidden_size));
  if (output_mask[1]) {
    grad_weights = at::empty(weights.sizes(), weights.options());
    Tensor of_old_h = grad_weights.slice(1, 0, hidden_size);
    Tensor of_input = grad_weights.slice(1, hidden_size);
    at::mm_out(of_old_h, grad_pre.t(), old_h);
    at::mm_out(of_input, grad_pre.t(), input);
  }
  if (output_mask[2]) grad_bias = grad_pre.sum(0, /*keepdim=*/bias->dim() == 2);
  return grads;
}

Gradients lltm_cell_backward_kernel(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                    const Tensor& input, const Tensor& weights,
                                    const OptionalTensor& bias, const Tensor& old_h,
                                    const Tensor& old_cell, const Tensor& new_cell,
                                    const Tensor& gates, OutputMask output_mask) {
  check_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                 output_mask);
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

  Gradients grads = products(grad_pre, input, weights, bias, old_h, output_mask);
  if (output_mask[4]) std::get<4>(grads) = grad_old_cell;
  return grads;
}

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
  check_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
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
  check_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
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
  register_lltm_autograd(libraries);
}

}  // namespace lltm_jit
