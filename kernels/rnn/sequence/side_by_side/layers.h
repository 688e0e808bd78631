// The layers of a stack side by side, as a wavefront.
//
// Note [Layers side by side]
// A small layer leaves most of a GPU idle. So layer l works on part k of the steps while the layer below works on
// part k + 1, as in a wavefront. These parts are independent, and run as recurrences of one launch, Note
// [Recurrences] (kernels.h). A row of each array has the units of all layers, or the gates of one layer after
// another. The steps are skewed: in row s of an array, layer l has its step s - l * part. So a launch computes the
// same rows of the arrays for all of its layers, and layer l reads the previous launch's rows of the layer below.
// Between launches, one batch of products computes these gates. The backward pass goes the other way round.
//
// The state passes from part to part like the results of a call: in 16 bits, the output is rounded between parts.
#pragma once

#include "rnn/sequence/operators.h"

namespace lltm_jit {

// Layers of one direction: the output, and the last states, which are differentiable any number of times. Nothing if
// one layer after the other is quicker, or if the call is none that this can take. `inputs`: the layers' input, their
// `weights` each, and the states, if any; these and `part` are those of recurrent_layers().
std::vector<Tensor> layers_side_by_side(at::ArrayRef<Tensor> inputs, int64_t layers,
                                        int64_t weights, const RecurrentCell& cell, bool tf32,
                                        std::optional<int64_t> part);

}  // namespace lltm_jit
