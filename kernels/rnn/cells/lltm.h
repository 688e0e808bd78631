// The LLTM cell for whole sequences; rnn/cell_step/maths.h has its maths.
#pragma once

#include "rnn/cell_step/maths.h"
#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct LltmCell : CellOf<3, 2> {
  static constexpr bool kIsBounded = true;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T> old, New<T> now) {
    const LltmGates<T> pre{x[0] + h[0], x[1] + h[1], x[2] + h[2]};
    const LltmState<T> state = lltm_new_state(lltm_activate(pre), old[1]);
    now[0] = state.h;
    now[1] = state.cell;
  }
};

}  // namespace lltm_jit
