// The states after each step of a sequence, combined from the results of its forward pass.
#pragma once

#include "rnn/sequence/operators.h"

namespace lltm_jit::ops {

// [steps, states, batch, hidden] in the output's dtype, for a sequence that is not reversed.
extern Operator<Tensor(const Tensor& output, const Tensor& c_n, const Tensor& saved_cells)>
    stack_states;

}  // namespace lltm_jit::ops
