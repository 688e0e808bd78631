// Whole sequences on the CPU, for any cell: see kernels.h for the arguments. Only the pointwise part depends on the
// cell, a few functions on neighbouring hidden units of one row (cell.h); the products and the threads are compiled
// once for all cells (forward.cpp, backward.cpp).
#pragma once

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// The sizes from which the steps are divided. Tests take sizes around each of them.
struct SequenceCpuBounds {
  static constexpr int64_t kRows = 64;     // whose sums, or gradients, stay in the cache
  static constexpr int64_t kTileRows = 8;  // of a thread, at least
  // The depth of a block, whose rows stay in the first-level cache; in bfloat16 in pairs, the second-level one.
  static constexpr int64_t kDepth = 512, kPairsDepth = 1024;
};

// A step of some neighbouring units of one row. Pointers are to the first of them; arrays named acc are of
// the arithmetic type, all others of the element type. Gate g of `gates`, `saved_gates`, `grad_gates` and
// `grad_hidden` is gate_stride elements after the one before, parameter p parameter_stride.
struct CellForwardRow {
  int64_t units, gate_stride, parameter_stride;
  const void* gates;       // the input's part; or, if null,
  const void* acc_inputs;  // [ceil(units / lanes), gates, lanes], as
  const void* acc_sums;    // the hidden part
  const void* parameters;  // or null
  void* acc_states;        // [states], state_stride apart; updated
  int64_t state_stride;
  void* output;           // written
  void* saved_gates;      // written; or null, as
  void* acc_saved_cells;  // [states-1], cell_stride apart
  int64_t cell_stride;
};

struct CellBackwardRow {
  int64_t units, gate_stride, parameter_stride;
  const void* grad_output;  // or null for zeros
  const void* acc_grad_h;   // what later steps add to it
  void* acc_grad_states;    // [states], state_stride apart; updated
  int64_t state_stride;
  const void* gates;  // where the cell does not add its gates
  const void* saved_gates;
  const void* parameters;       // or null
  const void* old_h;            // or null for zeros
  const void* acc_saved_cells;  // [states-1], cell_stride apart
  void* grad_gates;             // written, as
  void* grad_hidden;            // where the cell does not add its gates
  void* acc_grad_parameters;    // [parameters], cell_stride apart; added to
  int64_t cell_stride;
};

// A cell's functions by element type: Half, BFloat16, Float and Double.
struct CpuCell {
  static constexpr int kTypes = 4;
  void (*forward[kTypes])(const CellForwardRow&);
  void (*backward[kTypes])(const CellBackwardRow&);
};

// Defined in cell.h, and instantiated once a cell, in cells.cpp.
template <typename Cell>
const CpuCell& cpu_cell();

void sequence_forward_cpu(const SequenceForwardArgs& args, const CpuCell& cell);
void sequence_backward_cpu(const SequenceBackwardArgs& args, const CpuCell& cell);

}  // namespace lltm_jit
