// Sums of a dense tensor [outer, channels, inner] over all but the channels: a bias's gradient.
//
// Note [Sums in a fixed order]
// The items of a channel, outer * inner of them, are divided into parts whose number depends on the
// sizes alone; each part's sum is made in an order of its own, and then the parts are summed from the
// first to the last. So neither the number of threads nor which of them is quicker changes a bit.
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

// Enough parts for every core of a large chip, each long enough to be worth a block of threads, which
// sums many channels at once where inner is 1.
inline int64_t channel_sum_parts(const ChannelSumArgs& args) {
  constexpr int64_t kMostParts = 256;
  const int64_t parts = args.outer * args.inner / (args.inner == 1 ? 128 : 4096);
  return parts < 1 ? 1 : parts < kMostParts ? parts : kMostParts;
}

// Instantiated in <op>_cpu.cpp and <op>_cuda.cu, once a family.
template <typename Args = ChannelSumArgs>
void channel_sum_cpu(const Args& args);

#ifdef LLTM_JIT_CUDA
// Enqueues on `stream`; the tensor has elements.
template <typename Args = ChannelSumArgs>
cudaError_t launch_channel_sum(const Args& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
