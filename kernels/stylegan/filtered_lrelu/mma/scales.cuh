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
// The test of the window also tells whether v can reach the clamp at all; mostly it cannot, and the
// step goes without.
#pragma once

#include "stylegan/filtered_lrelu/mma/activation.cuh"
#include "stylegan/filtered_lrelu/mma/bands.cuh"
#include "stylegan/filtered_lrelu/mma/row_ring.cuh"

namespace lltm_jit {

// What the filters and the call make of it, for all walks; in shared memory.
struct ScaleConstants {
  float clamp, reach;  // of v at exponent 0; the largest |v| for |x| <= 1
  float result;        // what sums at exponent 0 are multiplied by
  int clamp_exponent;  // the largest out_exponent of clamped numbers

  template <typename scalar_t>
  __device__ __forceinline__ void set(const MmaCall& call, float up_scale, float up_gain,
                                      float down_scale) {
    clamp = call.clamp * up_scale * up_scale;
    reach = up_gain * up_gain * 1.01f;
    result = call.gain / (up_scale * up_scale) / (down_scale * down_scale);
    clamp_exponent = binary_exponent(clamp) + (sizeof(scalar_t) == 2 ? 4 : 0);
  }
};

template <typename scalar_t>
struct Scales {
  static constexpr bool kHalf = std::is_same_v<scalar_t, Half>;

  const ScaleConstants& constants;
  int in_exponent = 0, out_exponent = 0;

  // The exponent for samples up to `largest`.
  __device__ __forceinline__ int exponent_for(float largest) const {
    if (largest == 0) return in_exponent;
    const int exponent = binary_exponent(largest);
    if constexpr (kHalf) {
      return exponent >= -6 ? 0 : exponent >= -13 ? -7 : -14;
    } else {
      return max((exponent - (Arithmetic<scalar_t>::kTopExponent - 7)) & ~7, -96);
    }
  }
  __device__ __forceinline__ bool reaches_clamp(float largest, float bias) const {
    return !((largest + fabsf(bias)) * constants.reach < constants.clamp);
  }

  __device__ __forceinline__ float in_scale() const { return power_of_two(-in_exponent); }
  __device__ __forceinline__ float out_scale() const {
    return constants.result * power_of_two(out_exponent);
  }
  __device__ __forceinline__ float clamp() const {
    return constants.clamp * power_of_two(min(max(-out_exponent, -126), 126));
  }
  // v is multiplied by 2 so many times before it is clamped; more than 30 change nothing.
  __device__ __forceinline__ int doublings() const { return min(in_exponent - out_exponent, 30); }
};

}  // namespace lltm_jit
