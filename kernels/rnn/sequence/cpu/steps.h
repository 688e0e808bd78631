// Whole sequences on the CPU, for any cell: kernels.h explains the arguments. Only the pointwise
// part depends on the cell: a few functions on neighbouring hidden units of one row (cell.h). The
// products and the threads are compiled once for all cells (forward.cpp, backward.cpp).
#pragma once

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Sizes that divide the steps. Tests take sizes on both sides of each.
struct SequenceCpuBounds {
  static constexpr int64_t kRows = 64;     // their sums or gradients stay in the cache
  static constexpr int64_t kTileRows = 8;  // of a thread, at least
  // A block of this depth stays in the first-level cache; in bfloat16, in pairs, in the second-level cache.
  static constexpr int64_t kDepth = 512, kPairsDepth = 1024;
};

// A step of some neighbouring units of one row. Pointers are to the first unit. Arrays whose names begin
// with acc have the arithmetic type, all others the element type. The gates of `gates`, `saved_gates`,
// `grad_gates` and `grad_hidden` are gate_stride elements apart, the parameters parameter_stride.
struct CellForwardRow {
  int64_t units, gate_stride, parameter_stride;
  const void* gates;       // the input's part; if it is null,
  const void* acc_inputs;  // [ceil(units / lanes), gates, lanes], like
  const void* acc_sums;    // the hidden part
  const void* parameters;  // or null
  void* acc_states;        // [states], state_stride apart; updated
  int64_t state_stride;
  void* output;           // written
  void* saved_gates;      // written; or null, like
  void* acc_saved_cells;  // [states-1], cell_stride apart
  int64_t cell_stride;
};

struct CellBackwardRow {
  int64_t units, gate_stride, parameter_stride;
  const void* grad_output;  // or null for zeros
  const void* acc_grad_h;   // the later steps' part of h's gradient
  void* acc_grad_states;    // [states], state_stride apart; updated
  int64_t state_stride;
  const void* gates;  // if the cell does not add its gates
  const void* saved_gates;
  const void* parameters;       // or null
  const void* old_h;            // or null for zeros
  const void* acc_saved_cells;  // [states-1], cell_stride apart
  void* grad_gates;             // written, like
  void* grad_hidden;            // if the cell does not add its gates
  void* acc_grad_parameters;    // [parameters], cell_stride apart; sums
  int64_t cell_stride;
};

// A cell's functions by element type: Half, BFloat16, Float and Double.
struct CpuCell {
  static constexpr int kTypes = 4;
  void (*forward[kTypes])(const CellForwardRow&);
  void (*backward[kTypes])(const CellBackwardRow&);
};

// Defined in cell.h; cells.cpp instantiates it once per cell.
template <typename Cell>
const CpuCell& cpu_cell();

void sequence_forward_cpu(const SequenceForwardArgs& args, const CpuCell& cell);
void sequence_backward_cpu(const SequenceBackwardArgs& args, const CpuCell& cell);

}  // namespace lltm_jit
