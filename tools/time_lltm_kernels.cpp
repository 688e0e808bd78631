// For time_lltm_kernels.py: the cell's host code, with any plan in place of lltm_plan()'s.
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat_ops.h>
#include <torch/csrc/utils/pybind.h>

#include "rnn/cell_step/plan.h"

namespace lltm_jit {
namespace {

std::optional<LltmPlan> given;
LltmPlan chosen;  // the choice of lltm_plan() for the last call

template <typename Device>
LltmPlan given_plan(const LltmProblem& problem, const Device& device) {
  chosen = lltm_plan(problem, device);
  return given.value_or(chosen);
}

}  // namespace
}  // namespace lltm_jit

#define lltm_plan given_plan
#include "rnn/cell_step/kernels.cpp"
#undef lltm_plan

namespace lltm_jit {

// Stand-ins for functions that the family defines elsewhere.
void check_cell(const char*, const CellInputs&) {}
void check_backward(const BackwardInputs&) {}
bool matmul_uses_tf32() { return false; }
Tensor cat(at::TensorList tensors, int64_t dim) { return at::_ops::cat::call(tensors, dim); }

namespace {

// The kernels and stages of the next calls; by default those of the plan.
void force(int forward, int forward_stages, int backward, int backward_stages) {
  given = {LltmForwardKernel(forward), LltmBackwardKernel(backward), forward_stages,
           backward_stages};
}

std::array<int, 4> planned() {
  return {int(chosen.forward), chosen.forward_stages, int(chosen.backward), chosen.backward_stages};
}

StateAndGates forward_pass(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                           const Tensor& old_h, const Tensor& old_cell) {
  return forward_kernel({input, weights, bias, old_h, old_cell});
}

Gradients backward_pass(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                        const Tensor& old_h, const Tensor& old_cell, const OptionalTensor& grad_h,
                        const OptionalTensor& grad_cell, const Tensor& new_cell,
                        const Tensor& gates) {
  return backward_kernel({grad_h,
                          grad_cell,
                          {input, weights, bias, old_h, old_cell},
                          new_cell,
                          gates,
                          {true, true, true, true, true}});
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("force", &force);
  m.def("follow_plan", [] { given.reset(); });
  m.def("planned", &planned);
  m.def("forward", &forward_pass);
  m.def("backward", &backward_pass);
}

}  // namespace lltm_jit
