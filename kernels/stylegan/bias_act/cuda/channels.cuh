// Finds an element's channel, and the channel's bias.
#pragma once

#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"

namespace lltm_jit {

// Note [Channels of a pack]
// A thread reads neighbouring elements together, and finds the channel of the first with two
// divisions. If `inner` is a multiple of a pack, the others have the same channel. If inner is 1
// and the channels are a multiple of a pack, the others have the next channels, whose biases are
// one access. Otherwise a counter follows the channel from element to element.
enum class PackChannels { kOne, kNext, kCounted };

struct ChannelPlaces {
  PackChannels kind;
  Divisor inner, channels;  // in packs unless the kind is kCounted

  // The channels of packs of `vec` elements; `values` has a number per channel.
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

}  // namespace lltm_jit
