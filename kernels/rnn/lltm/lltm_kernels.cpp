// The LLTM operators on CPU and CUDA: allocation, and which kernels run.
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>

#include "core/host/checks.h"
#include "core/host/device.h"
#include "rnn/lltm/lltm.h"
#include "rnn/lltm/lltm_ops.h"

namespace lltm_jit {
namespace {

// For the CPU, or the current GPU.
LltmPlan plan_for(const Tensor& input, const LltmProblem& problem) {
#ifdef LLTM_JIT_CUDA
  if (input.is_cuda()) {
    LltmGpu gpu;
    C10_CUDA_CHECK(lltm_describe_gpu(&gpu));
    return lltm_plan(problem, gpu);
  }
#endif
  static const CpuFeatures cpu = cpu_features();
  return lltm_plan(problem, cpu);
}

Tensor dense_rows(const Tensor& matrix) {
  return matrix.stride(1) == 1 || matrix.size(1) <= 1 ? matrix : matrix.contiguous();
}

// Whether rows start at multiples of the kernels' widest access.
bool rows_aligned(const Tensor& matrix) {
  constexpr int64_t kAccess = 16;
  if (matrix.size(1) == 0) return true;
  return reinterpret_cast<uintptr_t>(matrix.const_data_ptr()) % kAccess == 0 &&
         matrix.stride(0) * matrix.element_size() % kAccess == 0;
}

bool rows_apart(const Tensor& matrix) { return matrix.stride(0) >= matrix.size(1); }

// The inputs as the kernels with their own products take them, and which of those run.
struct ProductInputs {
  Tensor input, weights, old_h;
  LltmProblem problem;
  LltmPlan plan;
  // `wanted`: the gradients that the backward pass is asked for.
  ProductInputs(const Tensor& input_, const Tensor& weights_, const Tensor& old_h_,
                const OutputMask& wanted = {})
      : input(dense_rows(input_)), weights(dense_rows(weights_)), old_h(dense_rows(old_h_)) {
    const int64_t input_size = input.size(1), hidden_size = old_h.size(1);
    problem = {
        .batch_size = input.size(0),
        .input_size = input_size,
        .hidden_size = hidden_size,
        .type = floating_type(input.scalar_type()),
        .aligned = rows_aligned(input) && rows_aligned(weights) && rows_aligned(old_h) &&
                   hidden_size * old_h.element_size() % 16 == 0 &&
                   input_size * input.element_size() % 16 == 0,
        .apart = rows_apart(input) && rows_apart(weights) && rows_apart(old_h),
        .grad_columns = (wanted[0] ? input_size : 0) + (wanted[3] ? hidden_size : 0),
    };
    plan = plan_for(input, problem);
  }
  LltmOperands operands() const {
    return {
        problem,         input.const_data_ptr(), weights.const_data_ptr(), old_h.const_data_ptr(),
        input.stride(0), weights.stride(0),      old_h.stride(0),          plan,
    };
  }
};

bool fits_own_products(const ProductInputs& inputs) {
  return inputs.plan.backward != LltmBackwardRoad::Library;
}

bool fits_own_cell(const ProductInputs& inputs) {
  return inputs.plan.forward != LltmForwardRoad::Library;
}

StateAndGates forward_own(const ProductInputs& inputs, const OptionalTensor& bias,
                          const Tensor& old_cell, bool save_gates) {
  const Tensor &input = inputs.input, &old_h = inputs.old_h;
  Tensor new_h = empty(old_h.sizes(), input);
  Tensor new_cell = empty(old_cell.sizes(), old_cell);
  Tensor gates;
  if (save_gates) gates = empty({old_h.size(0), 3 * old_h.size(1)}, input);
  const Tensor dense_cell = old_cell.contiguous();
  const Tensor dense_bias = bias ? bias->contiguous() : Tensor();
  LltmCellArgs args{inputs.operands()};
  args.bias = bias ? dense_bias.const_data_ptr() : nullptr;
  args.old_cell = dense_cell.const_data_ptr();
  args.new_h = new_h.mutable_data_ptr();
  args.new_cell = new_cell.mutable_data_ptr();
  args.gates = save_gates ? gates.mutable_data_ptr() : nullptr;
  args.cell_type = floating_type(old_cell.scalar_type());
  LLTM_JIT_RUN(input, args, lltm_cell_cpu, launch_lltm_cell);
  return {new_h, new_cell, gates};
}

StateAndGates forward(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                      const Tensor& old_h, const Tensor& old_cell, bool save_gates) {
  check_lltm_inputs("lltm_cell", input, weights, bias, old_h, old_cell);
  const KernelGuard guard(input);
  const ProductInputs inputs(input, weights, old_h);
  if (fits_own_cell(inputs)) {
    return forward_own(inputs, bias, old_cell, save_gates);
  }
  const Tensor X = at::cat({old_h, input}, 1);
  Tensor gates = bias ? at::addmm(*bias, X, weights.t()) : at::mm(X, weights.t());
  Tensor new_h = empty(old_h.sizes(), input);
  Tensor new_cell = empty(old_cell.sizes(), old_cell);
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

OptionalTensor dense(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

const void* data_or_null(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr() : nullptr;
}

Gradients products_own(const Tensor& grad_pre, const ProductInputs& inputs,
                       const OptionalTensor& bias, OutputMask output_mask) {
  Gradients grads;
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = grads;
  const auto allocate = [&](Tensor& grad, bool wanted, const Tensor& like) {
    if (wanted) grad = empty(like.sizes(), like);
    return wanted ? grad.mutable_data_ptr() : nullptr;
  };
  LltmProductsArgs args{inputs.operands()};
  args.grad_pre = grad_pre.const_data_ptr();
  args.grad_input = allocate(grad_input, output_mask[0], inputs.input);
  args.grad_weights = allocate(grad_weights, output_mask[1], inputs.weights);
  args.grad_bias = output_mask[2] ? allocate(grad_bias, true, *bias) : nullptr;
  args.grad_old_h = allocate(grad_old_h, output_mask[3], inputs.old_h);
  LLTM_JIT_RUN(inputs.input, args, lltm_products_cpu, launch_lltm_products);
  return grads;
}

// The gradients that are products with those of the pre-activations: all but the old cell's.
Gradients products(const Tensor& grad_pre, const Tensor& input, const Tensor& weights,
                   const OptionalTensor& bias, const Tensor& old_h, OutputMask output_mask) {
  const ProductInputs inputs(input, weights, old_h, output_mask);
  if (fits_own_products(inputs)) {
    return products_own(grad_pre, inputs, bias, output_mask);
  }
  // Without the concatenation of the forward pass: each block of columns is a product of its own.
  const int64_t hidden_size = old_h.size(1);
  Gradients grads;
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = grads;
  if (output_mask[0]) grad_input = at::mm(grad_pre, weights.slice(1, hidden_size));
  if (output_mask[3]) grad_old_h = at::mm(grad_pre, weights.slice(1, 0, hidden_size));
  if (output_mask[1]) {
    grad_weights = empty(weights.sizes(), weights);
    Tensor of_old_h = grad_weights.slice(1, 0, hidden_size);
    Tensor of_input = grad_weights.slice(1, hidden_size);
    at::mm_out(of_old_h, grad_pre.t(), old_h);
    at::mm_out(of_input, grad_pre.t(), input);
  }
  if (output_mask[2]) grad_bias = grad_pre.sum(0, /*keepdim=*/bias->dim() == 2);
  return grads;
}

}  // namespace

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

Gradients lltm_cell_backward_kernel(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                                    const Tensor& input, const Tensor& weights,
                                    const OptionalTensor& bias, const Tensor& old_h,
                                    const Tensor& old_cell, const Tensor& new_cell,
                                    const Tensor& gates, OutputMask output_mask) {
  check_lltm_backward(grad_h, grad_cell, input, weights, bias, old_h, old_cell, new_cell, gates,
                      output_mask);
  const KernelGuard guard(input);
  const int64_t batch_size = input.size(0), hidden_size = old_h.size(1);
  Tensor grad_pre = empty(gates.sizes(), gates);
  Tensor grad_old_cell;
  if (output_mask[4]) grad_old_cell = empty(new_cell.sizes(), new_cell);
  if (new_cell.numel() > 0) {
    const OptionalTensor dense_grad_h = dense(grad_h), dense_grad_cell = dense(grad_cell);
    const Tensor dense_gates = gates.contiguous(), dense_new_cell = new_cell.contiguous();
    const LltmBackwardArgs args{
        .grad_h = data_or_null(dense_grad_h),
        .grad_cell = data_or_null(dense_grad_cell),
        .gates = dense_gates.const_data_ptr(),
        .new_cell = dense_new_cell.const_data_ptr(),
        .grad_pre = grad_pre.mutable_data_ptr(),
        .grad_old_cell = output_mask[4] ? grad_old_cell.mutable_data_ptr() : nullptr,
        .batch_size = batch_size,
        .hidden_size = hidden_size,
        .type = floating_type(input.scalar_type()),
        .cell_type = floating_type(new_cell.scalar_type()),
    };
    LLTM_JIT_RUN(input, args, lltm_backward_cpu, launch_lltm_backward);
  }

  Gradients grads = products(grad_pre, input, weights, bias, old_h, output_mask);
  std::get<4>(grads) = grad_old_cell;
  return grads;
}

}  // namespace lltm_jit
