// upfirdn2d one result at a time, for any factors and filter.
#pragma once

#include "core/types/cuda.cuh"
#include "stylegan/upfirdn2d/kernels.h"

namespace lltm_jit {

// Reads an element of the filter.
template <typename opmath>
LLTM_JIT_DEVICE opmath load_tap(const void* f, ElementType type, int64_t index) {
  switch (type) {
    case ElementType::Half:
      return to_opmath(static_cast<const Half*>(f)[index]);
    case ElementType::BFloat16:
      return to_opmath(static_cast<const BFloat16*>(f)[index]);
    case ElementType::Float:
      return static_cast<opmath>(static_cast<const float*>(f)[index]);
    default:
      return static_cast<opmath>(static_cast<const double*>(f)[index]);
  }
}

// The taps t = first + k up, k in [0, count), that output `o` of an axis meets inside the image,
// and the input index of the first one. Each further tap meets the next input.
struct TapRange {
  int64_t first, count, index;
  LLTM_JIT_DEVICE TapRange(const UpfirdnAxis& axis, int64_t o) {
    const int64_t start = o * axis.down - axis.pad;  // of tap 0, in upsampled samples
    // The smallest integer that is at least 0 and at least start / up.
    index = start > 0 ? (start + axis.up - 1) / axis.up : 0;
    first = index * axis.up - start;
    const int64_t last = start + axis.taps - 1;
    const int64_t end = last < 0 ? 0 : last / axis.up + 1;
    count = (end < axis.in ? end : axis.in) - index;
  }
};

// The sum of one input row for output column ox, with row `ty` of the taps.
template <typename scalar_t>
LLTM_JIT_DEVICE opmath_t<scalar_t> row_sum(const Upfirdn2dArgs& args, const scalar_t* row,
                                           int64_t stride, const TapRange& x, int64_t ty) {
  using opmath = opmath_t<scalar_t>;
  const int64_t taps = args.horizontal.taps;
  const int64_t taps_row =
      args.separable ? 0 : tap_of_filter(ty, args.vertical.taps, args.flip) * taps;
  opmath sum = 0;
  for (int64_t k = 0; k < x.count; ++k) {
    const int64_t t = tap_of_filter(x.first + k * args.horizontal.up, taps, args.flip);
    const opmath h =
        args.f == nullptr ? opmath(1) : load_tap<opmath>(args.f, args.filter_type, taps_row + t);
    sum += h * to_opmath(row[(x.index + k) * stride]);
  }
  return sum;
}

// The vertical tap of a separable filter times the gain; for other filters, the gain alone.
template <typename opmath>
LLTM_JIT_DEVICE opmath vertical_tap(const Upfirdn2dArgs& args, int64_t ty) {
  opmath h = static_cast<opmath>(args.gain);
  if (args.separable && args.f != nullptr) {
    h *= load_tap<opmath>(args.f, args.filter_type,
                          tap_of_filter(ty, args.vertical.taps, args.flip));
  }
  return h;
}

// The first row of a plane: channel `channel` of image `n` if the channels are last, else plane
// `n`, with channel 0.
template <typename scalar_t>
LLTM_JIT_DEVICE const scalar_t* plane_of(const Upfirdn2dArgs& args, int64_t n, int64_t channel) {
  const int64_t inner = args.channels_last ? args.channels : 1;
  return static_cast<const scalar_t*>(args.x) + n * args.vertical.in * args.horizontal.in * inner +
         channel;
}

// One result, not yet rounded.
template <typename scalar_t>
__device__ __noinline__ opmath_t<scalar_t> direct_sum(const Upfirdn2dArgs& args, int64_t n,
                                                      int64_t channel, int64_t oy, int64_t ox) {
  using opmath = opmath_t<scalar_t>;
  const int64_t stride = args.channels_last ? args.channels : 1;
  const TapRange x(args.horizontal, ox), y(args.vertical, oy);
  const scalar_t* plane = plane_of<scalar_t>(args, n, channel);
  opmath sum = 0;
  for (int64_t k = 0; k < y.count; ++k) {
    const int64_t ty = y.first + k * args.vertical.up;
    const scalar_t* row = plane + (y.index + k) * args.horizontal.in * stride;
    sum += vertical_tap<opmath>(args, ty) * row_sum(args, row, stride, x, ty);
  }
  return sum;
}

}  // namespace lltm_jit
