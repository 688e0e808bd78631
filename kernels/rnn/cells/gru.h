// The gated recurrent unit, with the gates in torch.nn.GRU's order: the reset gate multiplies the
// hidden part of the candidate, including its bias. Source of the maths: K. Cho et al., "Learning
// Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation" (2014).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct GruCell : CellOf<3, 1, /*adds_gates=*/false> {
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T> old, New<T> now) {
    const T reset_gate = sigmoid(x[0] + h[0]), update_gate = sigmoid(x[1] + h[1]);
    const T candidate = tanh(x[2] + reset_gate * h[2]);
    now[0] = candidate + update_gate * (old[0] - candidate);
  }
};

}  // namespace lltm_jit
