// Whole sequences on the CPU, for any cell: kernels.h explains the arguments. Only the pointwise
// part depends on the cell: a few functions on neighbouring hidden units of one row (cell.h). The
// products and the threads are compiled once for all cells (forward.cpp, backward.cpp).
#pragma once

#include "core/types/cpu.h"
#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Sizes that divide the steps. Tests take sizes on both sides of each.
struct SequenceCpuBounds {
  static constexpr int64_t kRows = 64;     // their sums or gradients stay in the cache
  static constexpr int64_t kTileRows = 8;  // of a thread, at least
  // A block of this depth stays in the first-level cache; in bfloat16, in pairs, in the second-level cache.
  static constexpr int64_t kDepth = 512, kPairsDepth = 1024;
};

// A step of some neighbouring units of one row. Pointers are to the first unit. The gates of `gates`, `saved_gates`,
// `grad_gates` and `grad_hidden` are gate_stride elements apart, the parameters parameter_stride.
template <typename scalar_t>
struct CellForwardRow {
  using acc_t = opmath_t<scalar_t>;
  int64_t units, gate_stride, parameter_stride;
  const scalar_t* gates;       // the input's part; if it is null,
  const acc_t* inputs;         // [ceil(units / lanes), gates, lanes], like
  const acc_t* sums;           // the hidden part
  const scalar_t* parameters;  // or null
  acc_t* states;               // [states], state_stride apart; updated
  int64_t state_stride;
  scalar_t* output;       // written
  scalar_t* saved_gates;  // written; or null, like
  acc_t* saved_cells;     // [states-1], cell_stride apart
  int64_t cell_stride;
};

template <typename scalar_t>
struct CellBackwardRow {
  using acc_t = opmath_t<scalar_t>;
  int64_t units, gate_stride, parameter_stride;
  const scalar_t* grad_output;  // or null for zeros
  const acc_t* grad_h;          // the later steps' part of h's gradient
  acc_t* grad_states;           // [states], state_stride apart; updated
  int64_t state_stride;
  const scalar_t* gates;  // if the cell does not add its gates
  const scalar_t* saved_gates;
  const scalar_t* parameters;  // or null
  const scalar_t* old_h;       // or null for zeros
  const acc_t* saved_cells;    // [states-1], cell_stride apart
  scalar_t* grad_gates;        // written, like
  scalar_t* grad_hidden;       // if the cell does not add its gates
  acc_t* grad_parameters;      // [parameters], cell_stride apart; sums
  int64_t cell_stride;
};

// A cell's functions for an element type; null for a cell that normalises, whose steps are the formula's.
template <typename scalar_t>
struct CpuSteps {
  void (*forward)(const CellForwardRow<scalar_t>&);
  void (*backward)(const CellBackwardRow<scalar_t>&);
};
struct CpuCell : CpuSteps<c10::Half>, CpuSteps<c10::BFloat16>, CpuSteps<float>, CpuSteps<double> {
  bool product;  // whether the cell has recurrent weights
};

// Defined in cell.h; cells.cpp instantiates it once per cell.
template <typename Cell>
CpuCell cpu_cell();

// A cell without a product has one recurrence; its args have no weights, and its saved gates are the gates.
void sequence_cpu(const SequenceForwardArgs& args, const CpuCell& cell);
void sequence_cpu(const SequenceBackwardArgs& args, const CpuCell& cell);

}  // namespace lltm_jit
