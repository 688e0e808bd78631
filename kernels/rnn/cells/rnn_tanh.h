// The plain recurrent cell of torch.nn.RNN with nonlinearity="tanh". Source of the maths: J. Elman, "Finding
// Structure in Time" (1990).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct RnnTanhCell {
  static constexpr int kGates = 1, kStates = 1;
  static constexpr bool kAddsGates = true;

  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&h)[kGates],
                                        const T (&)[kStates], T (&now)[kStates]) {
    now[0] = tanh(x[0] + h[0]);
  }
};

}  // namespace lltm_jit
