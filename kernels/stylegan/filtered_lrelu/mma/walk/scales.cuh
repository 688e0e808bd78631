// The scales of a walk's numbers relative to the true ones, and when they change.
//
// Note [The running exponent]
// Halves reach from 2^-24 to 2^16, and numbers computed in them must fit, whatever the size of x.
// Each step multiplies its samples of x by 2^-in_exponent, which follows the largest magnitude in
// its window. The sums of y that are carried from step to step are 2^-out_exponent of their true
// values: when out_exponent changes they are rescaled, as in an online softmax. Exponents change in
// steps of eight, and so seldom. half needs this for small numbers only; it multiplies the taps
// instead of the samples.
//
// Far above the clamp, the clamp itself would vanish in 2^-in_exponent of the true numbers. There v
// is multiplied once more, up to infinity, before it is clamped, and out_exponent fits the clamp.
//
// Note [Outliers]
// A product with a band multiplies everything outside of the band by zero. So a number that is not finite
// would spoil all of a tile. A number far larger than the rest of a window would take the others' bits,
// because a window has one scale. Such numbers are outliers: the walk replaces them by zero and leaves a
// note. When all its walks are done, a warp computes the results with an outlier in their support again, on
// CUDA cores (exact.cuh). So an output depends on its support alone. The limit from which numbers are
// outliers only decreases during a walk. It starts at infinity. Then it follows the smallest of the largest
// magnitudes that lanes have copied of a slice, times the range in which the scale is fine enough. half
// needs no limit: its numbers have the products' scale and nearly their range.
//
// The test of the window also tells whether v can reach the clamp at all. Mostly it cannot, and the
// step leaves out the clamp.
#pragma once

#include "stylegan/filtered_lrelu/mma/bands.cuh"
#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/walk/activation.cuh"

namespace lltm_jit {

// Constants of the filters and the call, for all walks, in shared memory.
struct ScaleConstants {
  float clamp;         // of v at exponent 0
  float result;        // the factor of sums at exponent 0
  float room;          // |x| below it cannot reach the clamp
  int clamp_exponent;  // the largest out_exponent of clamped numbers

  template <typename scalar_t>
  LLTM_JIT_DEVICE void set(const MmaCall& call, float up_scale, float up_gain, float down_scale) {
    clamp = call.clamp * up_scale * up_scale;
    room = clamp / (up_gain * up_gain * 1.01f);
    result = call.gain / (up_scale * up_scale) / (down_scale * down_scale);
    clamp_exponent = binary_exponent(clamp) + (sizeof(scalar_t) == 2 ? 9 : 0);
  }
};

// A walk's note on its outliers (Note [Outliers]), in a byte: the binary exponent from which on
// numbers are outliers; 1 if all numbers are, 0 if there are none.
struct OutliersNote {
  uint8_t value;
  LLTM_JIT_DEVICE bool any() const { return value != 0; }
  LLTM_JIT_DEVICE uint32_t outliers() const { return value > 1 ? value << 23 : 0; }
};

// The scales of one warp, in shared memory.
template <typename scalar_t>
struct Scales {
  static constexpr bool kHalf = std::is_same_v<scalar_t, Half>;
  static constexpr uint32_t kNever = ~0u;
  static constexpr uint32_t kInfinity = 0x7f800000;

  // Bounds for the bits of a window's largest magnitude: `count` values from `first` on keep the
  // exponents, and values from `clamp_first` on may reach the clamp.
  struct alignas(16) Limits {
    uint32_t first, count, clamp_first;
    float in_scale;  // of samples of x, and of the bias
    LLTM_JIT_DEVICE bool keep(uint32_t largest) const { return largest - first < count; }
  } limits;
  uint32_t low_count;  // magnitudes with bits from 1 to this are too small for the scale
  uint32_t outliers;   // the bits of the smallest outlier's magnitude
  bool left_out;       // whether any number was left out
  int in_exponent, out_exponent;
  float out_scale;  // of the sums of y
  float limit;      // the clamp
  float boost;      // factor of v before it is clamped

  // After this, any window calls settle() first. If the bias is not `finite`, every number is an outlier.
  LLTM_JIT_DEVICE void begin(const ScaleConstants& constants, float bias, bool finite, bool reads) {
    const float room = constants.room - fabsf(bias);
    limits.clamp_first = reads ? kNever : room > 0 ? __float_as_uint(room) : 0;
    limits.first = limits.count = low_count = 0;
    outliers = finite ? kInfinity : 0;
    left_out = !finite;
  }

  // Where a window's outliers begin, if the largest number of one of its parts is `smallest`.
  LLTM_JIT_DEVICE uint32_t outliers_for(uint32_t smallest, float bias) const {
    smallest = max(smallest, __float_as_uint(fabsf(bias)));
    constexpr uint32_t kRange = uint32_t(kTop - 7 - kLow) << 23;
    const uint32_t power_of_two = (smallest + kRange) & kInfinity;  // as in a note
    return smallest < outliers - min(outliers, kRange) ? power_of_two : outliers;
  }
  LLTM_JIT_DEVICE OutliersNote note() const {
    return {static_cast<uint8_t>(left_out ? max(outliers >> 23, 1u) : 0u)};
  }

  // Chooses the scales for windows like this one.
  LLTM_JIT_DEVICE void settle(const ScaleConstants& constants, uint32_t largest, float bias) {
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
  // The binary exponent, after scaling, of the smallest numbers for which the halves are exact enough.
  static constexpr int kLow = sizeof(scalar_t) == 2 ? -7 : -9;

  // The exponent for samples up to `largest`.
  static LLTM_JIT_DEVICE int exponent_for(float largest) {
    const int exponent = binary_exponent(largest);
    if constexpr (kHalf) {
      return exponent >= -6 ? 0 : exponent >= -13 ? -7 : -14;
    } else {
      return max((exponent - (kTop - 7)) & ~7, kLeast);
    }
  }
  // The bits of the magnitudes that this exponent is for.
  static LLTM_JIT_DEVICE uint32_t bits_from(int exponent) {
    if constexpr (kHalf) {
      return exponent == -14 ? 0 : __float_as_uint(power_of_two(exponent - 6));
    } else {
      return exponent == kLeast ? 0 : __float_as_uint(power_of_two(exponent + kTop - 7));
    }
  }
  static LLTM_JIT_DEVICE uint32_t bits_to(int exponent) {
    constexpr int kHighest = kHalf ? 0 : (127 - (kTop - 7)) & ~7;
    if (exponent >= kHighest) return kNever;
    return __float_as_uint(power_of_two(kHalf ? exponent + 1 : exponent + kTop + 1));
  }
};

}  // namespace lltm_jit
