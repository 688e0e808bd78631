// The LLTM operators, and the functions that their files share.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "core/host/checks.h"
#include "core/host/operator.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

using State = std::tuple<Tensor, Tensor>;                              // new_h, new_cell
using StateAndGates = std::tuple<Tensor, Tensor, Tensor>;              // and the activated gates
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;  // in the order of CellInputs
using OutputMask = std::array<bool, 5>;                                // which of these to give

// The inputs of a cell.
struct CellInputs {
  const Tensor &input, &weights;
  const OptionalTensor& bias;
  const Tensor &old_h, &old_cell;
};

// Whether torch rounds products of floats on a GPU to TF32. Defined in bindings.cpp, which includes
// the header of torch's settings anyway.
bool matmul_uses_tf32();

// The inputs of a cell's gradients; new_cell and gates are results of the forward pass.
struct BackwardInputs {
  const OptionalTensor &grad_h, &grad_cell;
  CellInputs cell;
  const Tensor &new_cell, &gates;
  OutputMask output_mask;
};

// The signatures of the schemas, which have the structs' members as arguments.
template <typename Result>
using OfCell = Result(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                      const Tensor& old_h, const Tensor& old_cell);
using OfBackward = Gradients(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                             const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                             const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                             const Tensor& gates, OutputMask output_mask);
using OfTutorialBackward = std::vector<Tensor>(const Tensor& grad_h, const Tensor& grad_cell,
                                               const Tensor& new_cell, const Tensor& input_gate,
                                               const Tensor& output_gate,
                                               const Tensor& candidate_cell, const Tensor& X,
                                               const Tensor& gate_weights, const Tensor& weights);

namespace ops {
extern Operator<OfCell<State>> lltm_cell;
extern Operator<OfCell<StateAndGates>> lltm_cell_forward;
extern Operator<OfBackward> lltm_cell_backward;
extern Composite<OfCell<State>> lltm_cell_aten;
extern Composite<OfCell<void>> lltm_cell_check;
extern Composite<OfCell<std::vector<Tensor>>> lltm_forward;
extern Composite<OfTutorialBackward> lltm_backward;
}  // namespace ops

// Argument checks, with which the functions below begin.
void check_cell(const char* function, const CellInputs& in);
void check_backward(const BackwardInputs& in);

// Runs on CPU, CUDA and meta tensors; defined in kernels.cpp.
State cell_kernel(const CellInputs& in);
StateAndGates forward_kernel(const CellInputs& in);
Gradients backward_kernel(const BackwardInputs& in);

}  // namespace lltm_jit
