// The host side of sums over all dimensions but the channels, such as a bias's gradient.
#pragma once

#include "core/channel_sum/maths.h"
#include "core/elementwise/host.h"
#include "core/launch/device.h"

namespace lltm_jit {

// Sums a checked floating-point tensor over all dimensions but `dim`, which is not negative. 16-bit
// types are summed in float. The bits depend on the sizes and the memory format alone.
inline at::Tensor channel_sum(const at::Tensor& x, int64_t dim) {
  const KernelGuard guard(x);
  if (x.is_meta()) return empty({x.sym_size(dim)}, x);
  if (x.numel() == 0) return x.new_zeros({x.size(dim)});
  const at::Tensor dense = x.contiguous(x.suggest_memory_format());
  const ChannelLayout layout(dense, dim);
  const at::Tensor sums = empty({layout.channels}, x);
  ChannelSumArgs args{.x = dense.const_data_ptr(),
                      .sums = sums.mutable_data_ptr(),
                      .parts = nullptr,
                      .outer = layout.outer,
                      .channels = layout.channels,
                      .inner = layout.inner,
                      .type = floating_type(x.scalar_type())};
  const auto accumulated = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor parts = empty({channel_sum_parts(args), layout.channels}, x, accumulated);
  args.parts = parts.mutable_data_ptr();
  LLTM_JIT_RUN(dense, args, channel_sum_cpu<ChannelSumArgs>, launch_channel_sum<ChannelSumArgs>);
  return sums;
}

}  // namespace lltm_jit
