// The host side of elementwise operators: allocation, dense copies, and the launch.
#pragma once

#include <array>

#include "core/host/checks.h"
#include "core/host/device.h"
#include "core/math/elementwise.h"

namespace lltm_jit {

// How the kernels see a dtype: integers by width, a complex number as two real ones.
struct Elements {
  ElementType type;
  int64_t count;  // elements of `type` in one of the tensor
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

// Where a dense tensor's channels lie: element i of its memory is of channel i / inner % channels.
struct ChannelLayout {
  int64_t outer, channels, inner;
  ChannelLayout(const at::Tensor& dense, int64_t dim) : channels(dense.size(dim)) {
    inner = channels > 1 ? dense.stride(dim) : 1;  // that of a single channel says nothing
    outer = dense.numel() / (channels * inner);
  }
};

// An operand with one value for each index of a dimension, such as a bias.
struct ChannelOperand {
  const at::Tensor& values;  // [channels], checked, of the inputs' dtype and device
  int64_t dim;
};

// Allocates the outputs like `inputs`, makes these dense, and calls run(args) if there is work.
template <typename Args, size_t kInputs, size_t kOutputs, typename Run>
std::array<at::Tensor, kOutputs> with_dense(Args& args,
                                            const std::array<at::Tensor, kInputs>& inputs,
                                            const Run& run) {
  const at::Tensor& x = inputs[0];
  const auto format = x.suggest_memory_format();
  std::array<at::Tensor, kOutputs> outputs;
  for (auto& output : outputs) output = empty(x.sym_sizes(), x, format);
  if (x.is_meta() || x.numel() == 0) return outputs;
  const auto [type, count] = elements_of(x.scalar_type());
  args.numel = x.numel() * count;
  args.type = type;
  std::array<at::Tensor, kInputs> dense;
  for (size_t i = 0; i < kInputs; ++i) {
    dense[i] = inputs[i].contiguous(format);
    args.inputs[i] = dense[i].const_data_ptr();
  }
  for (size_t i = 0; i < kOutputs; ++i) args.outputs[i] = outputs[i].mutable_data_ptr();
  run(dense[0]);
  return outputs;
}

// `op` of checked tensors of one shape, dtype and device. On the meta device the results alone.
template <typename Op>
std::array<at::Tensor, Op::kOutputs> elementwise(
    const Op& op, const std::array<at::Tensor, Op::kInputs>& inputs) {
  const KernelGuard guard(inputs[0]);
  ElementwiseArgs<Op> args{{}, {}, 0, {}, op};
  return with_dense<ElementwiseArgs<Op>, Op::kInputs, Op::kOutputs>(
      args, inputs, [&](const at::Tensor& x) {
        LLTM_JIT_RUN(x, args, elementwise_cpu<Op>, launch_elementwise<Op>);
      });
}

// The same of an operator without parameters.
template <typename Op>
std::array<at::Tensor, Op::kOutputs> elementwise(
    const std::array<at::Tensor, Op::kInputs>& inputs) {
  return elementwise(Op{}, inputs);
}

// The same with an operand that has one value a channel; no integers.
template <typename Op>
std::array<at::Tensor, Op::kOutputs> elementwise(const Op& op,
                                                 const std::array<at::Tensor, Op::kInputs>& inputs,
                                                 const ChannelOperand& channel) {
  const KernelGuard guard(inputs[0]);
  ChannelArgs<Op> args{{{}, {}, 0, {}, op}, nullptr, 0, 0};
  return with_dense<ChannelArgs<Op>, Op::kInputs, Op::kOutputs>(
      args, inputs, [&](const at::Tensor& x) {
        const at::Tensor values = channel.values.contiguous();
        const ChannelLayout layout(x, channel.dim);
        args.values = values.const_data_ptr();
        args.channels = layout.channels;
        args.inner = layout.inner;
        LLTM_JIT_RUN(x, args, elementwise_cpu_channels<Op>, launch_elementwise_channels<Op>);
      });
}

}  // namespace lltm_jit
