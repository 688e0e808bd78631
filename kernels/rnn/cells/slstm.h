// The long short-term memory cell with an exponential input gate. Its states are h, c, n and m. c
// sums the candidates and n their weights; both are divided by exp(m), so that no gate overflows.
// Source of the maths: M. Beck et al., "xLSTM: Extended Long Short-Term Memory" (2024).
#pragma once

#include "rnn/sequence/cell.h"

namespace lltm_jit {

struct SlstmCell : CellOf<4, 4> {
  template <typename T>
  LLTM_JIT_HOST_DEVICE static void step(Gates<T> x, Gates<T> h, Old<T> old, New<T> now) {
    const T input = x[0] + h[0], forget = x[1] + h[1];
    const T candidate = tanh(x[2] + h[2]), output_gate = sigmoid(x[3] + h[3]);
    const T share = share_of(input - old[3], forget, old[2]), scale = scale_of(share, old[2]);
    const T c = old[1] + share * candidate, n = max(old[2] + share, scale);
    const T inverse = T(1) / scale;
    now[0] = output_gate * c / n;
    now[1] = c * inverse;
    now[2] = n * inverse;
    const T kept = old[3] - softplus(-forget);
    now[3] = where_greater(abs(old[2]), T(0), max(input, kept), input);
  }

  // exp(input) / (sigmoid(forget) exp(m)): the share of the new candidate in c and n, relative to the shares that
  // they keep, without the logarithm that the next m takes. The bounds apply where the smaller term would not
  // change a digit of the sum. Before the first step n and all sums are 0, so nothing is kept, whatever the bound.
  template <typename T>
  static LLTM_JIT_HOST_DEVICE T share_of(const T& ahead, const T& forget, const T& old_n) {
    const T most = T(40), least = where_greater(abs(old_n), T(0), T(0), T(4e-18));
    return max(exp(min(ahead, most)) + exp(min(ahead - forget, most)), least);
  }
  // The larger of the new and the kept share, which exp(m) becomes; before the first step, the new one.
  template <typename T>
  static LLTM_JIT_HOST_DEVICE T scale_of(const T& share, const T& old_n) {
    return max(share, where_greater(abs(old_n), T(0), T(1), T(0)));
  }
};

// Written by hand: dual numbers do not know that m scales both gates alike, and take twice as many instructions.
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
    const T output_gate = sigmoid(in.x[3]);
    const T share = SlstmCell::share_of(in.x[0] - in.old[3], in.x[1], old_n_);
    const T scale = SlstmCell::scale_of(share, old_n_);
    of_input_ = where_greater(abs(old_n_), T(0), share_of_max(share, T(1)), T(1));
    of_kept_ = T(1) - of_input_;
    forget_gate_ = T(1) / scale;
    input_gate_ = share * forget_gate_;
    by_candidate_ = input_gate_ * tanh_derivative(candidate_);
    const T sum = old_n_ + share, inverse = T(1) / max(sum, scale);
    of_n_ = share_of_max(sum, scale);
    const T quotient = (old_c_ + share * candidate_) * inverse;
    by_output_ = quotient * sigmoid_derivative(output_gate);
    by_c_ = output_gate * (scale * inverse);
    by_n_ = by_c_ * quotient;
  }

  template <typename Other>
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const CellDerivative<SlstmCell, Other>&) {}
  template <typename Function>
  LLTM_JIT_HOST_DEVICE void for_numbers(const Function& function) {
    for (T* number : {&candidate_, &input_gate_, &forget_gate_, &by_forget_, &by_candidate_,
                      &by_output_, &by_c_, &by_n_, &old_c_, &old_n_, &of_input_, &of_kept_, &of_n_})
      function(*number);
  }

  LLTM_JIT_HOST_DEVICE Step operator()(const T (&grad_now)[4]) const {
    const T c = grad_now[1] + grad_now[0] * by_c_;
    const T n = of_n_ * (grad_now[2] - grad_now[0] * by_n_);
    // Gradients of both gates' exponents, from which m is subtracted.
    const T of_input = input_gate_ * (c * candidate_ + n);
    const T of_rest = forget_gate_ * (c * old_c_ + n * old_n_);
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
  // The part of max(x, y)'s derivative that goes to x.
  static LLTM_JIT_HOST_DEVICE T share_of_max(const T& x, const T& y) {
    return where_greater(x, y, T(1), where_greater(y, x, T(0), T(0.5)));
  }

  T candidate_, input_gate_, forget_gate_;
  T by_forget_, by_candidate_, by_output_, by_c_, by_n_;
  T old_c_, old_n_;
  T of_input_, of_kept_, of_n_;  // derivatives of the maxima
};

}  // namespace lltm_jit
