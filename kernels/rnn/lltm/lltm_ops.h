// The LLTM operators as C++ sees them: types of their schemas, and the parts that the lltm*.cpp
// files have of each other.
#pragma once

#include "core/host/library.h"
#include "rnn/lltm/lltm_aten.h"

namespace lltm_jit {

using State = std::tuple<Tensor, Tensor>;                              // new_h, new_cell
using StateAndGates = std::tuple<Tensor, Tensor, Tensor>;              // and the activated gates
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;  // in the order of inputs
using OutputMask = std::array<bool, 5>;                                // which of them are wanted

using CellSignature = State(const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                            const Tensor&);
using ForwardSignature = StateAndGates(const Tensor&, const Tensor&, const OptionalTensor&,
                                       const Tensor&, const Tensor&);
using BackwardSignature = Gradients(const OptionalTensor&, const OptionalTensor&, const Tensor&,
                                    const Tensor&, const OptionalTensor&, const Tensor&,
                                    const Tensor&, const Tensor&, const Tensor&, OutputMask);

// The checked ATen formula: for devices without kernels, vmap and forward-mode differentiation.
CellSignature lltm_cell_aten;

// The checks alone, for the reference in Python.
void lltm_cell_check(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const Tensor& old_h, const Tensor& old_cell);

// Checks the arguments of lltm_cell_backward.
void check_lltm_backward(const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
                         const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                         const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                         const Tensor& gates, OutputMask output_mask);

// On CPU and CUDA, in lltm_kernels.cpp.
CellSignature lltm_cell_kernel;
ForwardSignature lltm_cell_forward_kernel;
BackwardSignature lltm_cell_backward_kernel;

// Autograd and autocast, in lltm_autograd.cpp.
void register_lltm_autograd(OpLibraries& libraries);

}  // namespace lltm_jit
