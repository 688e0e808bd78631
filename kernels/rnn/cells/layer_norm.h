// The cells of layers with layer norms. Their parameters are the weights and biases of these norms.
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

// A long short-term memory cell whose hidden part is normalised, over all gates of a row, and the cell state on its
// way to the output. p[0] to p[3] are the weights of the gates' norm, p[4] and p[5] weight and bias of the cell
// state's. Source of the maths: J. Ba et al., "Layer Normalization" (2016).
struct LayerNormLstmCell : CellOf<4, 2, /*adds_gates=*/false> {
  static constexpr int kParameters = 6;
  static constexpr bool kNormalisesGates = true;
  static constexpr int kNormalisedState = 1;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, const T (&p)[kParameters],
                                        Old<T> old, New<T> now) {
    const T input_gate = sigmoid(x[0] + p[0] * h[0]), forget_gate = sigmoid(x[1] + p[1] * h[1]);
    now[1] = forget_gate * old[1] + input_gate * tanh(x[2] + p[2] * h[2]);
    now[0] = sigmoid(x[3] + p[3] * h[3]);
  }
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void finish(const T (&p)[kParameters], const T& normalised,
                                          New<T> now) {
    now[0] = now[0] * tanh(p[4] * normalised + p[5]);
  }
};

// The same, but the next step gets the cell state as it is normalised, too.
struct LayerNormLstmCarriedCell : LayerNormLstmCell {
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void finish(const T (&p)[kParameters], const T& normalised,
                                          New<T> now) {
    now[1] = p[4] * normalised + p[5];
    now[0] = now[0] * tanh(now[1]);
  }
};

// A gated recurrent unit whose gates' sums are normalised, over all gates of a row; the reset gate multiplies the
// candidate, and an update gate of zero keeps most of the state. p[0] to p[2] are the weights of the norm, p[3] to p[5]
// its biases. Source of the maths: D. Hafner et al., "Mastering Diverse Domains through World Models" (2023).
struct LayerNormGruCell : CellOf<3, 1> {
  static constexpr int kParameters = 6;
  static constexpr bool kNormalisesGates = true;
  static constexpr double kEpsilon = 1e-3;
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, const T (&p)[kParameters],
                                        Old<T> old, New<T> now) {
    const T reset_gate = sigmoid(p[0] * (x[0] + h[0]) + p[3]);
    const T candidate = tanh(reset_gate * (p[1] * (x[1] + h[1]) + p[4]));
    const T update_gate = sigmoid(p[2] * (x[2] + h[2]) + p[5] - T(1));
    now[0] = old[0] + update_gate * (candidate - old[0]);
  }
};

}  // namespace lltm_jit

// NORMALISED(name, type): as the rows in cells.h.
#define LLTM_JIT_NORMALISED_CELLS(NORMALISED)                   \
  NORMALISED(layer_norm_lstm, LayerNormLstmCell)                \
  NORMALISED(layer_norm_lstm_carried, LayerNormLstmCarriedCell) \
  NORMALISED(layer_norm_gru, LayerNormGruCell)
