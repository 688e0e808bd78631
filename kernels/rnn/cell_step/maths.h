// The pointwise maths of the LLTM cell, written once for every implementation.
//
// Forward, from the pre-activations G = [h, x] W^T + b, split in three:
//   i = sigmoid(G1)   o = sigmoid(G2)   c~ = elu(G3)
//   C' = C + i c~     h' = o tanh(C')
// Backward, from the gradients dh' and dC':
//   dC = dC' + o (1 - tanh^2(C')) dh'
//   dG1 = c~ dC i (1 - i)   dG2 = tanh(C') dh' o (1 - o)   dG3 = i dC elu'(c~)
// C has no forget gate: it is a running sum, and its gradient passes through unchanged.
#pragma once

#include "core/math/activations.h"

namespace lltm_jit {

template <typename T>
struct LltmGates {
  T input_gate, output_gate, candidate_cell;
};

template <typename T>
struct LltmState {
  T h, cell;
};

template <typename T>
LLTM_JIT_HOST_DEVICE LltmGates<T> lltm_activate(const LltmGates<T>& pre) {
  return {sigmoid(pre.input_gate), sigmoid(pre.output_gate), elu(pre.candidate_cell)};
}

template <typename T>
LLTM_JIT_HOST_DEVICE LltmState<T> lltm_new_state(const LltmGates<T>& gates, T old_cell) {
  const T new_cell = old_cell + gates.input_gate * gates.candidate_cell;
  return {gates.output_gate * Math<T>::tanh(new_cell), new_cell};
}

template <typename T>
struct LltmGradients {
  LltmGates<T> pre;  // with respect to the pre-activations
  T old_cell;
};

template <typename T>
LLTM_JIT_HOST_DEVICE LltmGradients<T> lltm_backward(const LltmGates<T>& gates, T new_cell, T grad_h,
                                                    T grad_cell) {
  const T t = Math<T>::tanh(new_cell);
  const T cell = grad_cell + gates.output_gate * tanh_derivative(t) * grad_h;
  return {{gates.candidate_cell * cell * sigmoid_derivative(gates.input_gate),
           t * grad_h * sigmoid_derivative(gates.output_gate),
           gates.input_gate * cell * elu_derivative(gates.candidate_cell)},
          cell};
}

}  // namespace lltm_jit
