// Contract of the kernels that run a sequence step by step, beside a library's products.
#pragma once

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Units that a thread has at once, where all arrays are aligned for it.
constexpr int kStepUnits = 4;

// After the product. The state is read and written: new_h and new_cells are of the step before.
struct ForwardStepArgs {
  SequenceForwardArgs sequence;
  int64_t step;
  const void* products;  // [batch, gates*gate_size]: new_h times the weights; or null for zeros
  void* output_state;    // [batch, hidden] of state_type: what new_h is rounded from
  int units = 1;         // or kStepUnits
};

// Runs before the product of the step's gradients and the weights. Step -1 is before the first one: it only writes
// grad_old_h.
struct BackwardStepArgs {
  SequenceBackwardArgs sequence;
  int64_t step;
  // Products of the step after, [batch, hidden], null at the last step; or with gates_apart, in floats, [gates,
  // batch, hidden].
  const void* products;
  // Read and written: what the step after passes on to this one's states, without the products. Of state_type, as
  // are grad_parameters.
  void* grad_output_state;   // [batch, hidden]
  void* grad_cells;          // [states-1, batch, hidden]
  bool gates_apart = false;  // whether products are separate for each gate
  int units = 1;             // or kStepUnits
};

}  // namespace lltm_jit
