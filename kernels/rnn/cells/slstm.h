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

// Written by hand: dual numbers do not know that m moves both gates alike, and take twice the instructions.
template <typename T>
class CellDerivative<SlstmCell, T, false> {
  using Step = CellStep<SlstmCell, T>;

 public:
  CellDerivative() = default;
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const Step& in)
      : candidate_(tanh(in.x[2])),
        by_forget_(sigmoid(-in.x[1])),
        old_c_(in.old[1]),
        old_n_(in.old[2]) {
    const T input = in.x[0], kept = in.old[3] - softplus(-in.x[1]), output_gate = sigmoid(in.x[3]);
    const T any = abs(old_n_), most = T(80);
    const T m = where_greater(any, T(0), max(input, kept), input), rest = kept - m;
    of_input_ = where_greater(any, T(0), share(input, kept), T(1));
    of_kept_ = T(1) - of_input_;
    input_gate_ = exp(input - m);
    forget_gate_ = exp(where_greater(rest, most, most, rest));
    by_rest_ = where_greater(rest, most, T(0), forget_gate_);
    by_candidate_ = input_gate_ * tanh_derivative(candidate_);
    const T c = forget_gate_ * old_c_ + input_gate_ * candidate_;
    const T n = forget_gate_ * old_n_ + input_gate_, inverse = T(1) / max(n, T(1));
    of_n_ = share(n, T(1));
    const T quotient = c * inverse;
    by_output_ = quotient * sigmoid_derivative(output_gate);
    by_c_ = output_gate * inverse;
    by_n_ = by_c_ * quotient;
  }

  LLTM_JIT_HOST_DEVICE Step operator()(const T (&grad_now)[4]) const {
    const T c = grad_now[1] + grad_now[0] * by_c_;
    const T n = of_n_ * (grad_now[2] - grad_now[0] * by_n_);
    // Of the exponents of both gates, from which m is subtracted.
    const T of_input = input_gate_ * (c * candidate_ + n);
    const T of_rest = by_rest_ * (c * old_c_ + n * old_n_);
    const T kept = of_input_ * of_rest + of_kept_ * (grad_now[3] - of_input);
    Step grads;
    grads.x[0] = of_kept_ * of_input + of_input_ * (grad_now[3] - of_rest);
    grads.x[1] = kept * by_forget_;
    grads.x[2] = c * by_candidate_;
    grads.x[3] = grad_now[0] * by_output_;
    grads.old[0] = T(0);
    grads.old[1] = c * forget_gate_;
    grads.old[2] = n * forget_gate_;
    grads.old[3] = kept;
    return grads;
  }

 private:
  // What x has of the derivative of max(x, y).
  static LLTM_JIT_HOST_DEVICE T share(const T& x, const T& y) {
    return where_greater(x, y, T(1), where_greater(y, x, T(0), T(0.5)));
  }

  T candidate_, input_gate_, forget_gate_;
  T by_forget_, by_rest_, by_candidate_, by_output_, by_c_, by_n_;
  T old_c_, old_n_;
  T of_input_, of_kept_, of_n_;  // shares of what maxima give on
};

}  // namespace lltm_jit
