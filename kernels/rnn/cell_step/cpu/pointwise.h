// The pointwise part of the LLTM cell on the CPU, for a few neighbouring hidden units of one row.
#pragma once

#include <algorithm>

#include "core/types/vectorized.h"
#include "rnn/cell_step/kernels.h"
#include "rnn/cell_step/maths.h"

namespace lltm_jit {

// Computes `count` units of a row from the pre-activations of each gate, given as functions of (gate, first unit,
// count). Args are LltmForwardArgs or LltmCellArgs. The activated gates are written unless they are null.
template <typename scalar_t, typename cell_t, typename Args, typename Load>
inline void lltm_forward_row(const Args& args, int64_t row, int64_t unit, int64_t count,
                             void* gates, const Load& pre_activation) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const int64_t hidden = args.hidden_size, place = row * hidden + unit;
  const auto* old_cell = static_cast<const cell_t*>(args.old_cell) + place;
  auto* new_h = static_cast<scalar_t*>(args.new_h) + place;
  auto* new_cell = static_cast<cell_t*>(args.new_cell) + place;
  auto* active_gates = static_cast<scalar_t*>(gates) + row * 3 * hidden + unit;
  for (int64_t i = 0; i < count; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), count - i);
    const auto active = lltm_activate<Vec>(
        {pre_activation(0, i, n), pre_activation(1, i, n), pre_activation(2, i, n)});
    const auto state = lltm_new_state<Vec>(active, load(old_cell + i, n));
    store(new_h + i, state.h, n);
    store(new_cell + i, state.cell, n);
    if (gates != nullptr) {
      store(active_gates + i, active.input_gate, n);
      store(active_gates + hidden + i, active.output_gate, n);
      store(active_gates + 2 * hidden + i, active.candidate_cell, n);
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
