// The plain recurrent cell of torch.nn.RNN with nonlinearity="tanh". Source of the maths: J. Elman, "Finding
// Structure in Time" (1990).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct RnnTanhCell : CellOf<1, 1> {
  static constexpr bool kIsBounded = true;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T>, New<T> now) {
    now[0] = tanh(x[0] + h[0]);
  }
};

}  // namespace lltm_jit
