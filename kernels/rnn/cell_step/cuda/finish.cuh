// The LLTM cell's epilogue: from pre-activations to the new state.
#pragma once

#include "core/launch/launch.cuh"
#include "rnn/cell_step/cuda/fast_float.cuh"
#include "rnn/cell_step/kernels.h"
#include "rnn/cell_step/maths.h"

namespace lltm_jit {

// kCount neighbouring units of one row. The constructor computes and store() writes, because stores
// depend on a condition: so the arithmetic of several units overlaps.
template <typename scalar_t, typename cell_t, int kCount>
struct FinishedUnits {
  using opmath = opmath_t<scalar_t>;
  opmath h[kCount], cell[kCount], gates[3][kCount];

  LLTM_JIT_DEVICE FinishedUnits(const opmath (&pre)[3][kCount], const cell_t (&old_cell)[kCount]) {
    using T = std::conditional_t<sizeof(scalar_t) == 2, FastFloat, opmath>;
    LLTM_JIT_UNROLLED(e, kCount) {
      const auto active = lltm_activate<T>({T(pre[0][e]), T(pre[1][e]), T(pre[2][e])});
      const auto state = lltm_new_state<T>(active, T(to_opmath(old_cell[e])));
      h[e] = opmath(state.h);
      cell[e] = opmath(state.cell);
      gates[0][e] = opmath(active.input_gate);
      gates[1][e] = opmath(active.output_gate);
      gates[2][e] = opmath(active.candidate_cell);
    }
  }

  LLTM_JIT_DEVICE void store(const LltmCellArgs& args, int64_t row, int unit) const {
    const int64_t hidden = args.hidden_size, index = row * hidden + unit;
    store_pack<kCount>(static_cast<scalar_t*>(args.new_h) + index, h);
    store_pack<kCount>(static_cast<cell_t*>(args.new_cell) + index, cell);
    if (args.gates) {
      auto* to = static_cast<scalar_t*>(args.gates) + index + row * 2 * hidden;
      LLTM_JIT_UNROLLED(gate, 3) store_pack<kCount>(to + gate * hidden, gates[gate]);
    }
  }
};

}  // namespace lltm_jit
