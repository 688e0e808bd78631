#include "channel_ops.h"
#include "core/channel_sum/cpu.h"
#include "core/elementwise/cpu.h"
#include "core/elementwise/host.h"

namespace lltm_jit {
template void elementwise_cpu(const ElementwiseArgs<LeakyRelu>&);

// The sums of a tensor on the CPU over all dimensions but `dim`.
at::Tensor channel_sum(const at::Tensor& x, int64_t dim) {
  const KernelGuard guard(x);
  if (x.numel() == 0) return x.new_zeros({x.size(dim)});
  const at::Tensor dense = x.contiguous(x.suggest_memory_format());
  const ChannelLayout layout(dense, dim);
  const at::Tensor sums = empty({layout.channels}, x);
  ChannelSumArgs args{.x = dense.const_data_ptr(),
                      .sums = sums.mutable_data_ptr(),
                      .parts = nullptr,
                      .outer = layout.outer,
                      .channels = layout.channels,
                      .inner = layout.inner};
  const auto accumulated = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor parts = empty({channel_sum_parts(args), layout.channels}, x, accumulated);
  args.parts = parts.mutable_data_ptr();
  dispatch_floating(floating_type(x.scalar_type()),
                    [&](auto scalar) { channel_sum_as<decltype(scalar)>(args); });
  return sums;
}

}  // namespace lltm_jit
