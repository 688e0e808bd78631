// The products over all steps with the gradients of the gates' hidden part, for the backward pass.
#pragma once

#include <functional>

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// An array for the gates' gradients. On a CPU a large one would get new pages at each call, whose first use is
// slow. So a thread reuses the last array's memory, if it has the same size and nobody else holds it.
Tensor empty_gradients(const Tensor& gates, at::Storage& last);

// Products with the states that the steps began with, which are `output` and the given h, summed over steps and rows;
// shaped like weight_hh. Their units may be padded.
Tensor grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                      const SequenceInputs& in);
// The same, to be called when the references in `in` may be gone.
std::function<Tensor()> grad_weight_hh_of(const Tensor& grad_hidden, const Tensor& output,
                                          const GivenStates& h, const SequenceInputs& in);

// The gradient of the weights by Note [Small products of all steps] (small/kernels.h), or no tensor where these do not
// take it.
// bias: if not null, its gradient comes along.
Tensor small_grad_weight_hh(const Tensor& grad_hidden, const Tensor& output, const GivenStates& h,
                            const SequenceInputs& in, Tensor* bias);

// The gradient from padded rows of `before` for each direction, PaddedOutputs. bias: as above.
Tensor grad_weight_hh_of_padded(const Tensor& grad_hidden, const std::vector<Tensor>& before,
                                const SequenceInputs& in, Tensor* bias);

// Sums over steps and rows.
Tensor grad_bias(const Tensor& grad_hidden);

}  // namespace lltm_jit
