// Sums of a dense tensor [outer, channels, inner] over all dimensions but the channels: a bias's gradient.
//
// Note [Sums in a fixed order]
// A channel's outer * inner items are divided into parts whose number depends on the sizes alone.
// Each part is summed in a fixed order, and then the parts' sums are added from the first to the
// last. So neither the number nor the timing of the threads changes a bit.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

struct ChannelSumArgs {
  const void* x;  // [outer, channels, inner], dense, of `type`
  void* sums;     // [channels] of `type`, written
  void* parts;    // [channel_sum_parts(), channels] of the arithmetic type, written
  int64_t outer, channels, inner;
  ElementType type;
};

// The number of parts: enough for every core of a large chip, each worth a block of threads. Where
// inner is 1, a block sums many channels at once, so its parts are shorter.
inline int64_t channel_sum_parts(const ChannelSumArgs& args) {
  constexpr int64_t kMostParts = 256;
  const int64_t parts = args.outer * args.inner / (args.inner == 1 ? 128 : 4096);
  return parts < 1 ? 1 : parts < kMostParts ? parts : kMostParts;
}

// Each family that uses them instantiates these two, in one of its units for the CPU and one for CUDA.
template <typename Args = ChannelSumArgs>
void channel_sum_cpu(const Args& args);

#ifdef LLTM_JIT_CUDA
// Enqueues on `stream`; the tensor must not be empty.
template <typename Args = ChannelSumArgs>
cudaError_t launch_channel_sum(const Args& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
