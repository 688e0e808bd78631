// The LLTM operators as C++ sees them: types of their schemas, and the parts that lltm.cpp and
// lltm_autograd.cpp have of each other.
#pragma once

#include "core/library.h"
#include "lltm/lltm_aten.h"

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

// Autograd and autocast, in lltm_autograd.cpp.
void register_lltm_autograd(OpLibraries& libraries);

}  // namespace lltm_jit
