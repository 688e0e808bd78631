// For tests on a GPU: the cell's kernels by any plan.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <tuple>

#include "lltm.h"

namespace lltm_jit {
namespace {

using at::Tensor;

LltmGpu this_gpu() {
  LltmGpu gpu;
  C10_CUDA_CHECK(lltm_describe_gpu(&gpu));
  return gpu;
}

Tensor empty(at::IntArrayRef sizes, const Tensor& like) {
  return at::detail::empty_cuda(sizes, like.scalar_type(), like.device(), std::nullopt);
}

LltmOperands operands(const LltmProblem& problem, const LltmPlan& plan, const Tensor& input,
                      const Tensor& weights, const Tensor& old_h) {
  return {problem,         input.const_data_ptr(), weights.const_data_ptr(), old_h.const_data_ptr(),
          input.stride(0), weights.stride(0),      old_h.stride(0),          plan};
}

// Where kernels write to.
template <typename... Tensors>
auto places(const Tensors&... tensors) {
  return std::make_tuple(tensors.mutable_data_ptr()...);
}

// The new state and the gates. The cell has the type of the state; everything is dense.
std::vector<Tensor> cell(const LltmProblem& problem, const LltmPlan& plan, const Tensor& input,
                         const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                         const Tensor& old_cell) {
  Tensor new_h = empty(old_h.sizes(), old_h), new_cell = empty(old_cell.sizes(), old_cell);
  Tensor gates = empty({old_h.size(0), 3 * old_h.size(1)}, old_h);
  LltmCellArgs args{operands(problem, plan, input, weights, old_h)};
  args.bias = bias.const_data_ptr();
  args.old_cell = old_cell.const_data_ptr();
  std::tie(args.new_h, args.new_cell, args.gates) = places(new_h, new_cell, gates);
  args.cell_type = problem.type;
  C10_CUDA_CHECK(launch_lltm_cell(args, c10::cuda::getCurrentCUDAStream()));
  return {new_h, new_cell, gates};
}

// The gradients of the input, the weights, the bias and the old h.
std::vector<Tensor> products(const LltmProblem& problem, const LltmPlan& plan,
                             const Tensor& grad_pre, const Tensor& input, const Tensor& weights,
                             const Tensor& old_h) {
  Tensor grad_input = empty(input.sizes(), input), grad_weights = empty(weights.sizes(), input);
  Tensor grad_bias = empty(weights.sizes().slice(0, 1), input);
  Tensor grad_old_h = empty(old_h.sizes(), input);
  LltmProductsArgs args{operands(problem, plan, input, weights, old_h)};
  args.grad_pre = grad_pre.const_data_ptr();
  std::tie(args.grad_input, args.grad_weights, args.grad_bias, args.grad_old_h) =
      places(grad_input, grad_weights, grad_bias, grad_old_h);
  C10_CUDA_CHECK(launch_lltm_products(args, c10::cuda::getCurrentCUDAStream()));
  return {grad_input, grad_weights, grad_bias, grad_old_h};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  bind_types(m);
  bind_lltm(m);
  m.def("this_gpu", &this_gpu);
  m.def("cell", &cell);
  m.def("products", &products);
}

}  // namespace lltm_jit
