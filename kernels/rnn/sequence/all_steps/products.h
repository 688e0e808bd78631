// Products over all steps at once: the input's part of the gates, and gradients from those of the gates.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "core/host/operator.h"
#include "rnn/sequence/kernels.h"

namespace lltm_jit {

// Whether products of this factor are computed in float and rounded: on a CPU that cannot multiply its 16-bit type.
bool multiplies_as_floats(const at::Tensor& factor);

// A B, inside a KernelGuard. On a CPU, float and double use Note [Packed products]. On a GPU of 9.0, some large
// products of floats use Note [Products of all steps in float] (in_float/kernels.h); on any GPU, small products use
// Note [Small products of all steps] (small/kernels.h). The library computes all others. tf32 allows rounding floats on
// a GPU.
at::Tensor multiply_steps(const at::Tensor& a, const at::Tensor& b, bool tf32,
                          const std::optional<at::Tensor>& initial = std::nullopt);

// A^T B for each head, of the head's columns: [heads, gates*units, units], from gates' gradients [rows,
// gates*heads*units] and states [rows, heads*units], whose rows are dense.
at::Tensor multiply_heads(const at::Tensor& grads, const at::Tensor& old, int64_t heads, bool tf32);

// The checks of the arguments of input_gates.
void check_input_gates(const at::Tensor& input, const at::Tensor& weight_ih,
                       const std::optional<at::Tensor>& bias);

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
