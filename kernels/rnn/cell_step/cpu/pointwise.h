// The pointwise part of the LLTM cell on the CPU, for a few neighbouring hidden units of one row.
#pragma once

#include <algorithm>

#include "core/types/vectorized.h"
#include "rnn/cell_step/kernels.h"
#include "rnn/cell_step/maths.h"

namespace lltm_jit {

// The places of the elements of one row, each `count` long.
template <typename scalar_t, typename cell_t>
struct CellRow {
  const cell_t* old_cell;
  scalar_t* new_h;
  cell_t* new_cell;
  scalar_t *input_gate, *output_gate, *candidate_cell;  // activated gates, written if not null
};

// Computes the cell from the pre-activations of each gate, given as functions of (first element, count).
template <typename scalar_t, typename cell_t, typename Load>
inline void lltm_forward_row(const CellRow<scalar_t, cell_t>& row, int64_t count,
                             const Load& pre_activation) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  for (int64_t i = 0; i < count; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), count - i);
    const auto active = lltm_activate<Vec>(
        {pre_activation(0, i, n), pre_activation(1, i, n), pre_activation(2, i, n)});
    const auto state = lltm_new_state<Vec>(active, load(row.old_cell + i, n));
    store(row.new_h + i, state.h, n);
    store(row.new_cell + i, state.cell, n);
    if (row.input_gate != nullptr) {
      store(row.input_gate + i, active.input_gate, n);
      store(row.output_gate + i, active.output_gate, n);
      store(row.candidate_cell + i, active.candidate_cell, n);
    }
  }
}

// Calls function(scalar_t{}, cell_t{}) with the types that the arguments name.
template <typename Args, typename Function>
void dispatch_types(const Args& args, const Function& function) {
  dispatch_floating(args.type, [&](auto scalar) {
    if (args.cell_type == args.type) {
      function(scalar, scalar);
    } else {
      function(scalar, opmath_t<decltype(scalar)>{});
    }
  });
}

}  // namespace lltm_jit
