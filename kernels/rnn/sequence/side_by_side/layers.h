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

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace lltm_jit {

// output [steps, batch, hidden] of the last layer, h_n [batch, layers, hidden] and c_n [states-1, batch,
// layers, hidden]. Then skewed arrays for the backward pass, [steps, batch, layers, ...] each: outputs,
// with each layer's h_0 before them; the gates' sums or, if the cell does not add its gates, the input's
// part and then the hidden part; cell states before each step, [steps, states-1, batch, layers, hidden].
using LayersResults =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// gates: the first layer's [steps, batch, gates*hidden]. weights [2*layers-1, gates*hidden, hidden]:
// first the hidden parts' of all layers, then the input parts' of all layers but the first. bias
// [layers, gates*hidden] of the hidden part; if the cell does not add its gates [2*layers-1, ...], like
// the weights. h_0 [layers, batch, hidden], c_0 [states-1, layers, batch, hidden]; c_n has c_0's dtype.
// The cell has no parameters. The output is undefined if the GPU cannot run this.
LayersResults layers_forward(const at::Tensor& gates, const at::Tensor& weights,
                             const std::optional<at::Tensor>& bias,
                             const std::optional<at::Tensor>& h_0,
                             const std::optional<at::Tensor>& c_0, std::string_view cell, bool tf32,
                             int64_t part, bool training);

// Gradients of gates, weights, bias, h_0 and c_0, in their shapes; c_0's is computed in the arithmetic type.
using LayersGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
LayersGradients layers_backward(const std::optional<at::Tensor>& grad_output,
                                const std::optional<at::Tensor>& grad_h_n,
                                const std::optional<at::Tensor>& grad_c_n,
                                const at::Tensor& weights, const at::Tensor& outputs,
                                const at::Tensor& gates, const std::optional<at::Tensor>& hidden,
                                const at::Tensor& saved_cells, std::string_view cell, bool tf32,
                                int64_t part, bool wants_weights, bool wants_bias);

}  // namespace lltm_jit
