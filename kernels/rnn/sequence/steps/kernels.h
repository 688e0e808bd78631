// Contract of the kernels that run a sequence step by step, beside a library's products.
#pragma once

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Units that a thread has at once, where all arrays are aligned for it.
constexpr int kStepUnits = 4;

// Note [A block for each row]
// A cell that normalises needs sums over the units of a row. So a block has a row, and each thread has some units of
// it. Sums cost a barrier: a mean and its variance have one barrier, and so have both sums of a gradient.
constexpr int kMostRowThreads = 1024;
// 0 if there are too many units.
inline int normalised_threads(int64_t hidden_size, int units) {
  const int64_t threads = (hidden_size / units + 31) / 32 * 32;
  return threads <= kMostRowThreads ? static_cast<int>(threads) : 0;
}

// After the product. The first step reads old_h and old_cells, the last one writes new_h and new_cells; between them
// states are in the arrays here.
struct ForwardStepArgs {
  SequenceForwardArgs sequence;
  int64_t step;
  const void* products;  // [batch, gates*gate_size]: h before the step times the weights; or null
  void* h;               // [batch, gate_size] written: the factor of the next step's product
  void* output_state;    // [batch, hidden] of state_type, read and written: what h is rounded from
  void* cells;           // [states-1, batch, hidden] of state_type, read and written
  int units = 1;         // or kStepUnits
  int row_threads = 0;   // of a block, Note [A block for each row]; else 0

  LLTM_JIT_HOST_DEVICE bool is_first() const { return step == 0; }
  LLTM_JIT_HOST_DEVICE bool is_last() const { return step == sequence.steps - 1; }
};

// Runs before the product of the step's gradients and the weights. Step -1 is before the first one: it only writes
// grad_old_h.
struct BackwardStepArgs {
  SequenceBackwardArgs sequence;
  int64_t step;
  // Products of the next step, [batch, gate_size], null at the last step; or with gates_apart, in floats, [gates,
  // batch, gate_size].
  const void* products;
  // The gradients that the next step passes on to this step's states, without the products. Each step writes them, and
  // each but the last reads them; the last reads grad_new_h and grad_new_cells instead. They have state_type, as
  // grad_parameters.
  void* grad_output_state;   // [batch, hidden]
  void* grad_cells;          // [states-1, batch, hidden]
  bool gates_apart = false;  // whether products are separate for each gate
  int units = 1;             // or kStepUnits
  int row_threads = 0;       // as above

  LLTM_JIT_HOST_DEVICE bool is_last() const { return step == sequence.steps - 1; }
};

}  // namespace lltm_jit
