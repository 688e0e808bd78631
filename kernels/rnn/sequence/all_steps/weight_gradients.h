// Products over all steps with the gradients of the gates' hidden part, for the backward pass.
#pragma once

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// Allocates an array for the gates' gradients. On a CPU, each call would get new pages for a large array, and the first
// use of a page is slow. So a thread reuses its last array's memory if the size is the same and nobody else holds it.
Tensor empty_gradients(const Tensor& gates, at::Storage& last);

// The gradient of weight_hh, in its shape: products with the states before each step (`output` and
// the given h), summed over steps and rows. Their units may be padded.
Tensor grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                      const SequenceInputs& in);

// The gradient of the weights by Note [Small products of all steps] (small/kernels.h); an undefined
// tensor if the kernel does not support it.
// If `bias` is not null, it gets the bias's gradient.
Tensor small_grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                            const SequenceInputs& in, Tensor* bias);

// Sums over steps and rows.
Tensor grad_bias(const Tensor& grad_hidden);

}  // namespace lltm_jit
