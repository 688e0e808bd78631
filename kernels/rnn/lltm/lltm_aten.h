// LLTM cell composed of ATen ops: the formula for every device, for vmap, for forward-mode
// differentiation and for derivatives of the backward pass. Differentiable any number of times.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Checks the inputs of `function`, in lltm.cpp.
void check_lltm_inputs(const char* function, const Tensor& input, const Tensor& weights,
                       const OptionalTensor& bias, const Tensor& old_h, const Tensor& old_cell);

// Checks the inputs of lltm_tutorial_backward, in lltm.cpp.
void check_lltm_tutorial_backward(const Tensor& grad_h, const Tensor& grad_cell,
                                  const Tensor& new_cell, const Tensor& input_gate,
                                  const Tensor& output_gate, const Tensor& candidate_cell,
                                  const Tensor& X, const Tensor& gate_weights,
                                  const Tensor& weights);

// The gates come back activated, (batch_size, 3*hidden_size).
std::tuple<Tensor, Tensor, Tensor> lltm_forward_aten(const Tensor& input, const Tensor& weights,
                                                     const OptionalTensor& bias,
                                                     const Tensor& old_h, const Tensor& old_cell);

// Gradients of input, weights, bias, old_h, old_cell; undefined where the mask is false. Computes
// the gates from the inputs again, so that the result can be differentiated with respect to them.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> lltm_backward_aten(
    const OptionalTensor& grad_h, const OptionalTensor& grad_cell, const Tensor& input,
    const Tensor& weights, const OptionalTensor& bias, const Tensor& old_h, const Tensor& old_cell,
    std::array<bool, 5> output_mask);

// The calls of the PyTorch extension tutorial, with their order of arguments and results.
std::vector<Tensor> lltm_tutorial_forward(const Tensor& input, const Tensor& weights,
                                          const OptionalTensor& bias, const Tensor& old_h,
                                          const Tensor& old_cell);
std::vector<Tensor> lltm_tutorial_backward(const Tensor& grad_h, const Tensor& grad_cell,
                                           const Tensor& new_cell, const Tensor& input_gate,
                                           const Tensor& output_gate, const Tensor& candidate_cell,
                                           const Tensor& X, const Tensor& gate_weights,
                                           const Tensor& weights);

}  // namespace lltm_jit
