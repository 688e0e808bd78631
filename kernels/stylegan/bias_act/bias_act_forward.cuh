// The CUDA kernel of bias_act's forward pass. Bound by memory: a block ends after two packs a thread, so
// that others, of which an SM holds six, load while it computes; blocks that took several steps, each
// waiting for its own loads, were slower.
#pragma once

#include "core/cuda/elementwise_channels.cuh"
#include "stylegan/bias_act/bias_act_packs.cuh"

namespace lltm_jit {

// `one_channel`: all elements of a pack have one bias, or none has. Else each has its own, in registers
// of which fewer blocks have enough.
template <typename scalar_t, bool one_channel>
__global__ void __launch_bounds__(kThreads, one_channel ? 6 : 4)
    forward_kernel(BiasActArgs args, ChannelPlaces channels, bool vectorize) {
  using Packs = PassPacks<Pass::Forward, scalar_t>;
  using opmath = opmath_t<scalar_t>;
  constexpr int kVec = Packs::kVec, kPacks = Packs::kPacks, kOfBlock = kThreads * kPacks;
  wait_for_predecessor();
  const BiasActNumbers<typename Packs::T> numbers(args.op);
  const int64_t base = int64_t(blockIdx.x) * kOfBlock;
  const bool whole = vectorize && (base + kOfBlock) * kVec <= args.numel;
  Packs packs;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t first = (base + p * kThreads + threadIdx.x) * kVec;
    const int64_t left = max(args.numel - first, int64_t(0));
    packs.places[p] = {first, static_cast<int>(min(left, int64_t(kVec)))};
  }
  packs.load(args, whole, vectorize);
  constexpr int kBiases = one_channel ? 1 : kVec;
  opmath b[kPacks][kBiases] = {};
  if (args.b) {
    const auto* values = static_cast<const scalar_t*>(args.b);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t pack = base + p * kThreads + threadIdx.x;
      if constexpr (one_channel) {
        b[p][0] = to_opmath(values[channels.of_pack(pack)]);
      } else {
        load_channels<scalar_t, kVec>(channels, values, pack, b[p]);
      }
    }
  }
  packs.compute(
      args, numbers, [&](int p, int v) { return b[p][v % kBiases]; }, [](int, int, opmath) {});
  packs.store(args, whole, vectorize);
}

template <typename scalar_t>
cudaError_t launch_forward(const BiasActArgs& args, cudaStream_t stream) {
  constexpr int kVec = kVecOf<scalar_t>, kPacks = kPacksOf<Pass::Forward, scalar_t>;
  const int64_t packs = ceil_div(args.numel, int64_t(kVec));
  const int64_t inner = args.b ? args.inner : kVec;
  const auto channels = ChannelPlaces::of_packs(kVec, packs, inner, args.channels, args.b);
  const auto blocks = static_cast<unsigned>(ceil_div(packs, int64_t(kThreads * kPacks)));
  const bool vectorize = aligned_to_packs(args);
  if constexpr (kVec > 1) {
    if (channels.kind != PackChannels::kOne) {
      return launch(forward_kernel<scalar_t, false>, blocks, kThreads, 0, stream, args, channels,
                    vectorize);
    }
  }
  return launch(forward_kernel<scalar_t, true>, blocks, kThreads, 0, stream, args, channels,
                vectorize);
}

}  // namespace lltm_jit
