// A layer's operands, copied into padded ones: Note [Padded gates] (kernels.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

#include "core/host/operator.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// In this order: input, weight_ih, weight_hh, bias_ih and bias_hh. Absent operands are empty.
using Operands = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

namespace ops {
// Copies padded by Note [Padded gates] (kernels.h). add_biases: their sum replaces bias_hh.
extern Composite<Operands(const OptionalTensor& input, const Tensor& weight_ih,
                          const Tensor& weight_hh, const OptionalTensor& bias_ih,
                          const OptionalTensor& bias_hh, int64_t gates, bool add_biases)>
    pad_gates;
}  // namespace ops

// Packs a layer's operands for the kernels, in one launch on a GPU, its directions one behind the other, each given
// as weight_ih, weight_hh and, if any, bias_ih and bias_hh. `pads`: as by pad_gates(). Absent operands stay
// undefined; directions whose weights differ are refused. Call it inside a KernelGuard; it has no derivative.
Operands packed(const OptionalTensor& input, const std::vector<at::ArrayRef<Tensor>>& directions,
                int64_t gates, bool add_biases, bool pads);
// The same, with a derivative.
Operands packed_with_gradients(const OptionalTensor& input,
                               const std::vector<at::ArrayRef<Tensor>>& directions, int64_t gates,
                               bool add_biases, bool pads);

}  // namespace lltm_jit
