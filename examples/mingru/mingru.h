// minGRU: a GRU whose gates do not see the old state, so that all steps' gates are one product. Source of the
// maths: L. Feng et al., "Were RNNs All We Needed?" (2024).
#pragma once

#include "rnn/sequence/cell.h"  // explains x, old and now

struct MinGruCell {
  static constexpr int kGates = 2, kStates = 1;
  static constexpr bool kProduct = false;  // no recurrent weights
  static constexpr bool kLinear = true;    // in the old state

  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&old)[kStates],
                                        T (&now)[kStates]) {
    using namespace lltm_jit;
    const T update_gate = sigmoid(x[0]), candidate = x[1];
    now[0] = old[0] + update_gate * (candidate - old[0]);
  }
};
