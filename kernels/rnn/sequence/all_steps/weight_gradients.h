// What the backward pass makes of the gradients of the gates' hidden part, of all steps.
#pragma once

#include <functional>

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// Sums over steps and rows of products with the states that the steps began with, of which `output` and h_0 are; as
// weight_hh is. Their units may be padded.
Tensor grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const OptionalTensor& h_0,
                      const SequenceInputs& in);
// The same, to be called when the references of `in` may be gone.
std::function<Tensor()> grad_weight_hh_of(const Tensor& grad_hidden, const Tensor& output,
                                          const OptionalTensor& h_0, const SequenceInputs& in);

// Sums over steps and rows.
Tensor grad_bias(const Tensor& grad_hidden);

}  // namespace lltm_jit
