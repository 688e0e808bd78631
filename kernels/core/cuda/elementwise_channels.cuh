// The CUDA kernel of elementwise operators with an operand of one value a channel, and the way from an
// element to its channel, for other kernels, too.
#pragma once

#include "core/cuda/fast_divide.cuh"
#include "core/cuda/launch.cuh"
#include "core/math/elementwise.h"

namespace lltm_jit {

// Note [Channels of a pack]
// Neighbouring elements are read together, and the channel of the first costs two divisions. Where
// `inner` is a multiple of a pack, the others have the same channel; where inner is 1 and the channels
// are a multiple of a pack, they have the next ones, which are one access more. Otherwise each step to
// the next element is counted.
enum class PackChannels { kOne, kNext, kCounted };

struct ChannelPlaces {
  PackChannels kind;
  Divisor inner, channels;  // in packs where the kind is not kCounted

  // Of packs of `vec` elements; `values` has one for each channel.
  static ChannelPlaces of_packs(int vec, int64_t packs, int64_t inner, int64_t channels,
                                const void* values) {
    if (inner % vec == 0) return {PackChannels::kOne, {inner / vec, packs}, {channels, packs}};
    if (inner == 1 && channels % vec == 0 && aligned(kAccessBytes, values)) {
      return {PackChannels::kNext, {1, packs}, {channels / vec, packs}};
    }
    return {PackChannels::kCounted, {inner, packs * vec}, {channels, packs * vec}};
  }
};

template <typename scalar_t, int kVec>
__device__ __forceinline__ void load_channels(const ChannelPlaces& places, const scalar_t* values,
                                              int64_t pack, opmath_t<scalar_t> (&channel)[kVec]) {
  int64_t place = places.kind == PackChannels::kCounted ? pack * kVec : pack;
  int64_t run = places.inner.divide(place);
  if (places.kind == PackChannels::kNext) {
    places.channels.divide(run);
    load_pack<kVec>(values + run * kVec, channel);
    return;
  }
  places.channels.divide(run);
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    channel[v] = to_opmath(values[run]);
    if (places.kind == PackChannels::kOne) continue;
    if (++place == places.inner.divisor) {
      place = 0;
      if (++run == places.channels.divisor) run = 0;
    }
  }
}

template <typename Op, typename scalar_t, int kVec>
__device__ __forceinline__ void channels_apply(const ChannelArgs<Op>& args,
                                               const ChannelPlaces& places, int64_t pack) {
  using opmath = opmath_t<scalar_t>;
  opmath in[Op::kInputs][kVec], out[Op::kOutputs][kVec], channel[kVec];
#pragma unroll
  for (int k = 0; k < Op::kInputs; ++k) {
    load_pack<kVec>(static_cast<const scalar_t*>(args.inputs[k]) + pack * kVec, in[k]);
  }
  load_channels<scalar_t, kVec>(places, static_cast<const scalar_t*>(args.values), pack, channel);
#pragma unroll
  for (int v = 0; v < kVec; ++v) {
    opmath x[Op::kInputs], y[Op::kOutputs];
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) x[k] = in[k][v];
    args.op.apply(x, channel[v], y);
#pragma unroll
    for (int k = 0; k < Op::kOutputs; ++k) out[k][v] = y[k];
  }
#pragma unroll
  for (int k = 0; k < Op::kOutputs; ++k) {
    store_pack<kVec>(static_cast<scalar_t*>(args.outputs[k]) + pack * kVec, out[k]);
  }
}

// The first `packs` times kVec elements a pack at a time, the others one by one.
template <typename Op, typename scalar_t, int kVec>
__global__ void channels_kernel(ChannelArgs<Op> args, ChannelPlaces of_packs,
                                ChannelPlaces of_elements, int64_t packs) {
  wait_for_predecessor();
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = thread; p < packs; p += stride) {
    channels_apply<Op, scalar_t, kVec>(args, of_packs, p);
  }
  for (int64_t i = packs * kVec + thread; i < args.numel; i += stride) {
    channels_apply<Op, scalar_t, 1>(args, of_elements, i);
  }
}

// The part of the launch that all element types share, which are many to compile.
template <typename Op>
cudaError_t launch_channels_kernel(void (*kernel)(ChannelArgs<Op>, ChannelPlaces, ChannelPlaces,
                                                  int64_t),
                                   int vec, const ChannelArgs<Op>& args, cudaStream_t stream) {
  bool vectorize = true;
  for (const void* pointer : args.inputs) vectorize &= aligned(kAccessBytes, pointer);
  for (const void* pointer : args.outputs) vectorize &= aligned(kAccessBytes, pointer);
  const int64_t packs = vectorize ? args.numel / vec : 0;
  const int64_t rest = args.numel - packs * vec;
  const auto of_elements =
      ChannelPlaces::of_packs(1, args.numel, args.inner, args.channels, nullptr);
  const auto of_packs = ChannelPlaces::of_packs(vec, packs, args.inner, args.channels, args.values);
  // Several times what the SMs hold at once, for of these kernels, with their many registers, fewer fit:
  // then it matters little that the last ones leave some SMs idle.
  constexpr int64_t kMostBlocks = 148 * 32;
  const int64_t blocks = min(ceil_div(max(packs, rest), int64_t(kThreads)), kMostBlocks);
  return launch(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, args, of_packs,
                of_elements, packs);
}

template <typename Op>
cudaError_t launch_elementwise_channels(const ChannelArgs<Op>& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    constexpr int kVec = kAccessBytes / sizeof(scalar_t);
    return launch_channels_kernel(channels_kernel<Op, scalar_t, kVec>, kVec, args, stream);
  });
}

}  // namespace lltm_jit
