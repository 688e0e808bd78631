// The host side of elementwise operators: allocation, dense copies, and the launch.
#pragma once

#include <array>

#include "core/elementwise/maths.h"
#include "core/host/checks.h"
#include "core/launch/device.h"

namespace lltm_jit {

// The kernels' view of a dtype: integers by width, a complex number as two real ones.
struct Elements {
  ElementType type;
  int64_t count;  // elements of `type` per element of the tensor
};

inline Elements elements_of(at::ScalarType dtype) {
  if (c10::isComplexType(dtype)) return {floating_type(c10::toRealValueType(dtype)), 2};
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    constexpr ElementType by_log2_bytes[] = {ElementType::Int8, ElementType::Int16,
                                             ElementType::Int32, ElementType::Int64};
    return {by_log2_bytes[__builtin_ctzll(c10::elementSize(dtype))], 1};
  }
  return {floating_type(dtype), 1};
}

// Applies `op` to checked tensors of one shape, dtype and device; the results have the layout of
// the first. On the meta device nothing is computed.
template <typename Op>
std::array<at::Tensor, Op::kOutputs> elementwise(
    const Op& op, const std::array<at::Tensor, Op::kInputs>& inputs) {
  const at::Tensor& x = inputs[0];
  const KernelGuard guard(x);
  const auto format = x.suggest_memory_format();
  std::array<at::Tensor, Op::kOutputs> outputs;
  for (auto& output : outputs) output = empty(x.sym_sizes(), x, format);
  if (x.is_meta() || x.numel() == 0) return outputs;
  const auto [type, count] = elements_of(x.scalar_type());
  ElementwiseArgs<Op> args{{}, {}, x.numel() * count, type, op};
  std::array<at::Tensor, Op::kInputs> dense;
  for (size_t i = 0; i < Op::kInputs; ++i) {
    dense[i] = inputs[i].contiguous(format);
    args.inputs[i] = dense[i].const_data_ptr();
  }
  for (size_t i = 0; i < Op::kOutputs; ++i) args.outputs[i] = outputs[i].mutable_data_ptr();
  LLTM_JIT_RUN(dense[0], args, elementwise_cpu<Op>, launch_elementwise<Op>);
  return outputs;
}

}  // namespace lltm_jit
