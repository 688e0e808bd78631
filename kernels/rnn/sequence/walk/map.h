// A step of a cell that is linear in its states, as a linear map.
#pragma once

#include "core/math/dual.h"
#include "rnn/sequence/cell.h"

namespace lltm_jit {

// The states of a cell with kLinear after a step: factors * old + sums.
template <typename Cell, typename T>
struct CellMap {
  static constexpr int kStates = Cell::kStates;
  T factors[kStates][kStates], sums[kStates];

  CellMap() = default;
  // `in.old` is not read.
  LLTM_JIT_HOST_DEVICE explicit CellMap(const CellStep<Cell, T>& in) {
    using Traits = CellTraits<Cell>;
    using Number = Dual<T, kStates>;
    CellStep<Cell, Number> variables;
    LLTM_JIT_UNROLLED(g, Traits::kGates) variables.x[g] = Number(in.x[g]);
    LLTM_JIT_UNROLLED(i, Traits::kParameters) variables.p[i] = Number(in.p[i]);
    LLTM_JIT_UNROLLED(s, kStates) variables.old[s] = Number::variable(T(0), s);
    Number now[kStates];
    run_step(variables, now);
    LLTM_JIT_UNROLLED(s, kStates) {
      sums[s] = now[s].value;
      LLTM_JIT_UNROLLED(of, kStates) {
        factors[s][of] = now[s].depends_on(of) ? now[s].partials[of] : T(0);
      }
    }
  }
};

}  // namespace lltm_jit
