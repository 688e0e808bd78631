// The long short-term memory cell, with the gates in torch.nn.LSTM's order. Source of the maths:
// S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory" (1997), with forget gates (Gers et al., 2000).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct LstmCell : CellOf<4, 2> {
  static constexpr bool kIsBounded = true;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T> old, New<T> now) {
    const T input_gate = sigmoid(x[0] + h[0]), forget_gate = sigmoid(x[1] + h[1]);
    const T candidate = tanh(x[2] + h[2]), output_gate = sigmoid(x[3] + h[3]);
    now[1] = forget_gate * old[1] + input_gate * candidate;
    now[0] = output_gate * tanh(now[1]);
  }
};

}  // namespace lltm_jit
