// The long short-term memory cell with an exponential input gate, with states h, c, n and m: c and n are sums of the
// candidates and of their weights, both divided by exp(m), so that no gate overflows. Source of the maths: M. Beck et
// al., "xLSTM: Extended Long Short-Term Memory" (2024).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct SlstmCell : CellOf<4, 4> {
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T> old, New<T> now) {
    const T input = x[0] + h[0], forget = x[1] + h[1];
    const T candidate = tanh(x[2] + h[2]), output_gate = sigmoid(x[3] + h[3]);
    const T kept = old[3] - softplus(-forget);  // the logarithm of what is kept of c and n
    // n is 0 before the first step. What is kept is then unbounded, but all sums are 0: any bound keeps them so.
    now[3] = where_greater(abs(old[2]), T(0), max(input, kept), input);
    const T rest = kept - now[3], most = T(80);
    const T input_gate = exp(input - now[3]);
    const T forget_gate = exp(where_greater(rest, most, most, rest));
    now[1] = forget_gate * old[1] + input_gate * candidate;
    now[2] = max(forget_gate * old[2] + input_gate, T(1));
    now[0] = output_gate * now[1] / now[2];
  }
};

}  // namespace lltm_jit
