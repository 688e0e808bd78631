// How far the numbers of a walk are from the true ones, and when that changes.
//
// Note [The running exponent]
// Halves reach from 2^-24 to 2^16, and what is computed in them must fit, whatever the size of x.
// Each step multiplies its samples of x by 2^-in_exponent, which follows the largest magnitude in
// its window, and the sums of y that are carried from step to step are 2^-out_exponent of their
// true values: where that changes, they are multiplied, as in an online softmax. Exponents go in
// steps of eight, so that they seldom do. half needs it for small numbers only: its taps are
// multiplied, not the samples.
//
// Far above the clamp, the clamp itself would vanish in 2^-in_exponent of the true numbers. There v
// is multiplied once more, up to infinity, before it is clamped, and out_exponent is what fits the
// clamp.
//
// Note [Outliers]
// A product with a band multiplies what is outside of it by zero. So what is not finite would reach all
// of a tile; and what is far larger than the rest of a window would take its bits, for all of a window
// has one scale. Such numbers are outliers: the walk goes on as if they were zero, and leaves a note. When
// all its walks are done, a warp computes those results again, on CUDA cores, that have an outlier in their
// support (exact_walk.cuh). An output depends on its support alone. Outliers are numbers from a magnitude on,
// that only decreases in the course of a walk: infinity at first; then so many times the smallest of what
// lanes have copied of a slice, its largest number being its size, that the scale is fine enough for both.
// half needs no such limit: its numbers have the same scale, and nearly the same range, as the products.
//
// The test of the window also tells whether v can reach the clamp at all; mostly it cannot, and the
// step goes without.
#pragma once

#include "stylegan/filtered_lrelu/mma/activation.cuh"
#include "stylegan/filtered_lrelu/mma/bands.cuh"
#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"

namespace lltm_jit {

// What the filters and the call make of it, for all walks; in shared memory.
struct ScaleConstants {
  float clamp;         // of v at exponent 0
  float result;        // what sums at exponent 0 are multiplied by
  float room;          // |x| below it cannot reach the clamp
  int clamp_exponent;  // the largest out_exponent of clamped numbers

  template <typename scalar_t>
  __device__ __forceinline__ void set(const MmaCall& call, float up_scale, float up_gain,
                                      float down_scale) {
    clamp = call.clamp * up_scale * up_scale;
    room = clamp / (up_gain * up_gain * 1.01f);
    result = call.gain / (up_scale * up_scale) / (down_scale * down_scale);
    clamp_exponent = binary_exponent(clamp) + (sizeof(scalar_t) == 2 ? 9 : 0);
  }
};

// What a walk leaves of Note [Outliers], in a byte: the binary exponent from which on numbers are left
// out; 1 if all of them are, 0 if there are none.
struct OutliersNote {
  uint8_t value;
  __device__ __forceinline__ bool any() const { return value != 0; }
  __device__ __forceinline__ uint32_t outliers() const { return value > 1 ? value << 23 : 0; }
};

// The scales of one warp, in shared memory.
template <typename scalar_t>
struct Scales {
  static constexpr bool kHalf = std::is_same_v<scalar_t, Half>;
  static constexpr uint32_t kNever = ~0u;
  static constexpr uint32_t kInfinity = 0x7f800000;

  // Bounds for the bits of a window's largest magnitude: `count` from `first` on keep the exponents,
  // and those from `clamp_first` on may reach the clamp.
  struct alignas(16) Limits {
    uint32_t first, count, clamp_first;
    float in_scale;  // of samples of x, and the bias
    __device__ __forceinline__ bool keep(uint32_t largest) const { return largest - first < count; }
  } limits;
  uint32_t low_count;  // of magnitudes from 1 on that this scale is too coarse for
  uint32_t outliers;   // the bits of the magnitudes from which on numbers are left out
  bool left_out;       // whether there were any
  int in_exponent, out_exponent;
  float out_scale;  // of the sums of y
  float limit;      // the clamp
  float boost;      // of v before it is clamped

  // Any window is to settle() the scales first. `finite`: the bias is; else every number is an outlier.
  __device__ __forceinline__ void begin(const ScaleConstants& constants, float bias, bool finite,
                                        bool reads) {
    const float room = constants.room - fabsf(bias);
    limits.clamp_first = reads ? kNever : room > 0 ? __float_as_uint(room) : 0;
    limits.first = limits.count = low_count = 0;
    outliers = finite ? kInfinity : 0;
    left_out = !finite;
  }

  // Where the outliers of a window begin, of which a part has no more than `smallest`.
  __device__ __forceinline__ uint32_t outliers_for(uint32_t smallest, float bias) const {
    smallest = max(smallest, __float_as_uint(fabsf(bias)));
    constexpr uint32_t kRange = uint32_t(kTop - 7 - kLow) << 23;
    const uint32_t power_of_two = (smallest + kRange) & kInfinity;  // of a note
    return smallest < outliers - min(outliers, kRange) ? power_of_two : outliers;
  }
  __device__ __forceinline__ OutliersNote note() const {
    return {static_cast<uint8_t>(left_out ? max(outliers >> 23, 1u) : 0u)};
  }

  // For windows like this one.
  __device__ __forceinline__ void settle(const ScaleConstants& constants, uint32_t largest,
                                         float bias) {
    const uint32_t most = max(largest, __float_as_uint(fabsf(bias)));
    if (most != 0) in_exponent = exponent_for(__uint_as_float(most));
    const bool clamps_now = largest >= limits.clamp_first;
    out_exponent = clamps_now ? min(in_exponent, constants.clamp_exponent) : in_exponent;

    uint32_t first = bits_from(in_exponent);
    uint32_t end = bits_to(in_exponent);
    if (__float_as_uint(fabsf(bias)) >= first) first = 0;
    if (constants.clamp_exponent < in_exponent) {
      if (clamps_now) {
        first = max(first, limits.clamp_first);
      } else {
        end = min(end, limits.clamp_first);
      }
    }
    end = min(end, outliers);
    limits.first = min(first, end);
    limits.count = end - limits.first;
    const uint32_t low = __float_as_uint(power_of_two(max(in_exponent, kLeast + 8) + kLow));
    const bool lows = !kHalf && in_exponent > kLeast && __float_as_uint(fabsf(bias)) < low;
    low_count = lows ? low - 1 : 0;
    limits.in_scale = power_of_two(-in_exponent);
    out_scale = constants.result * power_of_two(out_exponent);
    limit = constants.clamp * power_of_two(min(max(-out_exponent, -126), 126));
    boost = power_of_two(min(in_exponent - out_exponent, kMostDoublings));
  }

 private:
  static constexpr int kMostDoublings = sizeof(scalar_t) == 2 ? 15 : 30;
  static constexpr int kTop = Arithmetic<scalar_t>::kTopExponent, kLeast = -96;
  // The binary exponent of the smallest numbers, times the scale, for which the halves are exact enough.
  static constexpr int kLow = sizeof(scalar_t) == 2 ? -7 : -9;

  // The exponent for samples up to `largest`.
  static __device__ __forceinline__ int exponent_for(float largest) {
    const int exponent = binary_exponent(largest);
    if constexpr (kHalf) {
      return exponent >= -6 ? 0 : exponent >= -13 ? -7 : -14;
    } else {
      return max((exponent - (kTop - 7)) & ~7, kLeast);
    }
  }
  // The bits of the magnitudes that it is the exponent for.
  static __device__ __forceinline__ uint32_t bits_from(int exponent) {
    if constexpr (kHalf) {
      return exponent == -14 ? 0 : __float_as_uint(power_of_two(exponent - 6));
    } else {
      return exponent == kLeast ? 0 : __float_as_uint(power_of_two(exponent + kTop - 7));
    }
  }
  static __device__ __forceinline__ uint32_t bits_to(int exponent) {
    constexpr int kHighest = kHalf ? 0 : (127 - (kTop - 7)) & ~7;
    if (exponent >= kHighest) return kNever;
    return __float_as_uint(power_of_two(kHalf ? exponent + 1 : exponent + kTop + 1));
  }
};

}  // namespace lltm_jit
