// The LLTM operators on CPU and CUDA, and their results' shapes on meta tensors: allocation, and
// the choice of kernels.
#include "rnn/cell_step/kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm_ops.h>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "core/launch/parallel.h"
#include "rnn/cell_step/operators.h"

namespace lltm_jit {
namespace {

// The plan for the CPU, or for the current GPU.
LltmPlan plan_for(const Tensor& input, const LltmProblem& problem) {
#ifdef LLTM_JIT_CUDA
  if (input.is_cuda()) {
    LltmGpu gpu;
    C10_CUDA_CHECK(lltm_describe_gpu(&gpu));
    return lltm_plan(problem, gpu);
  }
#endif
  return lltm_plan(problem, cpu_features(at::get_num_threads()));
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

// The inputs in the form that the kernels with their own products need, and the plan.
struct ProductInputs {
  Tensor input, weights, old_h;
  LltmOperands operands;
  // For the backward pass: whether the gradients of input and old_h are asked for.
  ProductInputs(const Tensor& input_, const Tensor& weights_, const Tensor& old_h_,
                bool grad_input = false, bool grad_old_h = false)
      : input(dense_rows(input_)), weights(dense_rows(weights_)), old_h(dense_rows(old_h_)) {
    const int64_t input_size = input.size(1), hidden_size = old_h.size(1);
    const LltmProblem problem{
        .batch_size = input.size(0),
        .input_size = input_size,
        .hidden_size = hidden_size,
        .type = floating_type(input.scalar_type()),
        .aligned = rows_aligned(input) && rows_aligned(weights) && rows_aligned(old_h) &&
                   hidden_size * old_h.element_size() % 16 == 0 &&
                   input_size * input.element_size() % 16 == 0,
        .apart = rows_apart(input) && rows_apart(weights) && rows_apart(old_h),
        .grad_columns = (grad_input ? input_size : 0) + (grad_old_h ? hidden_size : 0),
        .tf32 = input.is_cuda() && input.scalar_type() == at::kFloat && matmul_uses_tf32(),
    };
    operands = {problem,
                input.const_data_ptr(),
                weights.const_data_ptr(),
                old_h.const_data_ptr(),
                input.stride(0),
                weights.stride(0),
                old_h.stride(0),
                plan_for(input, problem)};
  }
};

// Allocates the results of a forward pass.
StateAndGates allocate(const CellInputs& in, bool save_gates) {
  const Tensor &old_h = in.old_h, &old_cell = in.old_cell;
  Tensor gates;
  if (save_gates) gates = empty({old_h.sym_size(0), 3 * old_h.sym_size(1)}, old_h);
  return {empty(old_h.sym_sizes(), old_h), empty(old_cell.sym_sizes(), old_cell), gates};
}

StateAndGates forward(const CellInputs& in, bool save_gates) {
  check_cell("lltm_cell", in);
  const KernelGuard guard(in.input);
  if (in.input.is_meta() || in.old_h.numel() == 0) return allocate(in, save_gates);
  const ProductInputs inputs(in.input, in.weights, in.old_h);
  const bool own = inputs.operands.plan.forward != LltmForwardKernel::Library;
  StateAndGates results = allocate(in, save_gates && own);
  auto& [new_h, new_cell, gates] = results;
  if (!own) {
    const Tensor X = cat({in.old_h, in.input}, 1);
    gates = in.bias ? in.bias->addmm(X, in.weights.t()) : X.mm(in.weights.t());
  }
  const Tensor dense_cell = in.old_cell.contiguous();
  const LltmStates states{
      .old_cell = dense_cell.const_data_ptr(),
      .new_h = new_h.mutable_data_ptr(),
      .new_cell = new_cell.mutable_data_ptr(),
      .gates = data_or_null(gates),
      .cell_type = floating_type(in.old_cell.scalar_type()),
  };
  if (own) {
    const OptionalTensor bias = dense(in.bias);
    const LltmCellArgs args{inputs.operands, states, data_or_null(bias)};
    LLTM_JIT_RUN(in.input, args, lltm_cell_cpu, launch_lltm_cell);
  } else {
    const LltmProblem& sizes = inputs.operands;
    const LltmForwardArgs args{states, sizes.batch_size, sizes.hidden_size, sizes.type, save_gates};
    LLTM_JIT_RUN(in.input, args, lltm_forward_cpu, launch_lltm_forward);
  }
  return results;
}

// Allocates the gradients that are asked for.
Gradients allocate(const BackwardInputs& in) {
  const auto wanted = [&](size_t i, const Tensor& like) {
    return in.output_mask[i] ? empty(like.sym_sizes(), like) : Tensor();
  };
  return {wanted(0, in.cell.input), wanted(1, in.cell.weights), wanted(2, as_tensor(in.cell.bias)),
          wanted(3, in.cell.old_h), wanted(4, in.cell.old_cell)};
}

// Computes the gradients that are products with the pre-activations' gradients: all but old_cell's.
void products(const Tensor& grad_pre, const CellInputs& in, Gradients& grads) {
  auto& [grad_input, grad_weights, grad_bias, grad_old_h, grad_old_cell] = grads;
  const ProductInputs inputs(in.input, in.weights, in.old_h, grad_input.defined(),
                             grad_old_h.defined());
  if (inputs.operands.plan.backward != LltmBackwardKernel::Library) {
    LltmProductsArgs args{inputs.operands};
    args.grad_pre = grad_pre.const_data_ptr();
    args.grad_input = data_or_null(grad_input);
    args.grad_weights = data_or_null(grad_weights);
    args.grad_bias = data_or_null(grad_bias);
    args.grad_old_h = data_or_null(grad_old_h);
    LLTM_JIT_RUN(in.input, args, lltm_products_cpu, launch_lltm_products);
    return;
  }
  // Without the forward pass's concatenation: each block of columns is a separate product.
  const int64_t hidden_size = in.old_h.size(1);
  const auto product = [](Tensor out, const Tensor& a, const Tensor& b) {
    at::_ops::mm_out::call(a, b, out);
  };
  if (grad_input.defined()) product(grad_input, grad_pre, in.weights.slice(1, hidden_size));
  if (grad_old_h.defined()) product(grad_old_h, grad_pre, in.weights.slice(1, 0, hidden_size));
  if (grad_weights.defined()) {
    product(grad_weights.slice(1, 0, hidden_size), grad_pre.t(), in.old_h);
    product(grad_weights.slice(1, hidden_size), grad_pre.t(), in.input);
  }
  if (grad_bias.defined()) grad_bias = grad_pre.sum(0, /*keepdim=*/grad_bias.dim() == 2);
}

}  // namespace

State cell_kernel(const CellInputs& in) {
  auto [new_h, new_cell, gates] = forward(in, /*save_gates=*/false);
  return {new_h, new_cell};
}

StateAndGates forward_kernel(const CellInputs& in) { return forward(in, /*save_gates=*/true); }

Gradients backward_kernel(const BackwardInputs& in) {
  check_backward(in);
  const KernelGuard guard(in.cell.input);
  Gradients grads = allocate(in);
  if (in.gates.is_meta()) return grads;
  Tensor grad_pre = empty(in.gates.sym_sizes(), in.gates);
  if (in.new_cell.numel() > 0) {
    const OptionalTensor grad_h = dense(in.grad_h), grad_cell = dense(in.grad_cell);
    const Tensor gates = in.gates.contiguous(), new_cell = in.new_cell.contiguous();
    const LltmBackwardArgs args{
        .grad_h = data_or_null(grad_h),
        .grad_cell = data_or_null(grad_cell),
        .gates = gates.const_data_ptr(),
        .new_cell = new_cell.const_data_ptr(),
        .grad_pre = grad_pre.mutable_data_ptr(),
        .grad_old_cell = data_or_null(std::get<4>(grads)),
        .batch_size = new_cell.size(0),
        .hidden_size = new_cell.size(1),
        .type = floating_type(gates.scalar_type()),
        .cell_type = floating_type(new_cell.scalar_type()),
    };
    LLTM_JIT_RUN(gates, args, lltm_backward_cpu, launch_lltm_backward);
  }
  products(grad_pre, in.cell, grads);
  return grads;
}

}  // namespace lltm_jit
