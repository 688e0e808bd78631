// The end of a step whose state is normalised, and its derivative.
#pragma once

#include "core/math/dual.h"
#include "rnn/sequence/cell.h"

namespace lltm_jit {

template <typename Cell, typename T>
LLTM_JIT_HOST_DEVICE void finish_step(const T (&p)[CellTraits<Cell>::kParametersRoom],
                                      const T& normalised, T (&now)[Cell::kStates]) {
  if constexpr (CellTraits<Cell>::kParameters > 0) {
    Cell::finish(p, normalised, now);
  } else {
    Cell::finish(normalised, now);
  }
}

// The gradients of finish()'s arguments, with `now` as step() has left it.
template <typename Cell, typename T>
struct FinishGradients {
  using Traits = CellTraits<Cell>;
  T p[Traits::kParametersRoom], normalised, now[Traits::kStates];

  FinishGradients() = default;
  LLTM_JIT_HOST_DEVICE FinishGradients(const T (&given_p)[Traits::kParametersRoom],
                                       const T& given_normalised,
                                       const T (&given_now)[Traits::kStates],
                                       const T (&grad_now)[Traits::kStates]) {
    constexpr int kNow = Traits::kParameters + 1;
    using Number = typename DualFor<T, kNow + Traits::kStates>::type;
    Number parameters[Traits::kParametersRoom], states[Traits::kStates];
    LLTM_JIT_UNROLLED(i, Traits::kParameters) parameters[i] = Number::variable(given_p[i], i);
    LLTM_JIT_UNROLLED(s, Traits::kStates) states[s] = Number::variable(given_now[s], kNow + s);
    finish_step<Cell>(parameters, Number::variable(given_normalised, kNow - 1), states);
    const auto of = [&](int variable) {
      T sum = T(0);
      LLTM_JIT_UNROLLED(s, Traits::kStates) {
        if (states[s].depends_on(variable)) {
          sum = sum + states[s].partials[variable] * grad_now[s];
        }
      }
      return sum;
    };
    LLTM_JIT_UNROLLED(i, Traits::kParameters) p[i] = of(i);
    normalised = of(kNow - 1);
    LLTM_JIT_UNROLLED(s, Traits::kStates) now[s] = of(kNow + s);
  }
};

}  // namespace lltm_jit
