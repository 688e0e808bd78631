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

// Before the product of the step's gradients with the weights. Step -1 is before the first one: it writes
// grad_old_h, and only that.
struct BackwardStepArgs {
  SequenceBackwardArgs sequence;
  int64_t step;
  // [batch, hidden]: of the step after; or null at the last one. Or apart, of each gate, in floats: [gates, batch, hidden].
  const void* products;
  // Read and written: what the step after leaves to this one's states, but for the products. Of
  // state_type, grad_parameters too.
  void* grad_output_state;   // [batch, hidden]
  void* grad_cells;          // [states-1, batch, hidden]
  bool gates_apart = false;  // whether products are
  int units = 1;             // or kStepUnits
};

}  // namespace lltm_jit
