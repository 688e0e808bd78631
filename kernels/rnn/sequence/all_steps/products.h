// Products of all steps at once: the input's part of the gates, and what the backward pass makes of the gates' gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "core/host/operator.h"
#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Whether products of this factor are computed in float, and rounded: on a CPU without products of its 16 bits.
bool multiplies_as_floats(const at::Tensor& factor);

// A B inside a KernelGuard: by our own kernel on a CPU in float and double, Note [Packed products]; for some large
// products of floats on a GPU of 9.0 by Note [Products of all steps in float] (in_float/kernels.h); for small ones on a GPU
// by Note [Small products of all steps] (small/kernels.h); else by the library. On a GPU floats may be rounded if tf32 says so.
at::Tensor multiply_steps(const at::Tensor& a, const at::Tensor& b, bool tf32,
                          const std::optional<at::Tensor>& initial = std::nullopt);

// Of each head's columns of both matrices, A^T B alone: [heads, gates*units, units] of gates' gradients
// [rows, gates*heads*units] and states [rows, heads*units], whose rows are dense.
at::Tensor multiply_heads(const at::Tensor& grads, const at::Tensor& old, int64_t heads, bool tf32);

using InputGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

namespace ops {
extern Operator<at::Tensor(const at::Tensor& input, const at::Tensor& weight_ih,
                           const std::optional<at::Tensor>& bias, bool tf32)>
    input_gates;
extern Operator<InputGradients(const at::Tensor& grad_gates, const at::Tensor& input,
                               const at::Tensor& weight_ih, std::array<bool, 3> output_mask,
                               bool tf32)>
    input_gates_backward;
}  // namespace ops

}  // namespace lltm_jit
