// An LSTM whose gates see the cell: the maths of one hidden unit in one step. Source of the maths: F. Gers
// and J. Schmidhuber, "Recurrent Nets that Time and Count" (2000).
#pragma once

#include "rnn/sequence/cell.h"  // explains x, h, p, old and now

struct PeepholeCell {
  static constexpr int kGates = 4, kStates = 2;  // states[0] is the output
  static constexpr int kParameters = 3;          // learnt per unit, besides matrices and biases

  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&h)[kGates],
                                        const T (&p)[kParameters], const T (&old)[kStates],
                                        T (&now)[kStates]) {
    using namespace lltm_jit;
    const T input_gate = sigmoid(x[0] + h[0] + p[0] * old[1]);
    const T forget_gate = sigmoid(x[1] + h[1] + p[1] * old[1]);
    now[1] = forget_gate * old[1] + input_gate * tanh(x[2] + h[2]);
    now[0] = sigmoid(x[3] + h[3] + p[2] * now[1]) * tanh(now[1]);
  }
};
