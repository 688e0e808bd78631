// How far the numbers of a walk are from the true ones, and when that changes.
//
// Note [The running exponent]
// Halves reach from 2^-24 to 2^16, and what is computed in them must fit, whatever the size of x. Each
// step multiplies its samples of x by 2^-in_exponent, which follows the largest magnitude in its window,
// and the sums of y that are carried from step to step are 2^-out_exponent of their true values: where
// that changes, they are multiplied, as in an online softmax. Exponents go in steps of eight, so that they
// seldom do. half needs it for small numbers only: its taps are multiplied, not the samples.
//
// Far above the clamp, the clamp itself would vanish in 2^-in_exponent of the true numbers. There v is
// multiplied once more, up to infinity, before it is clamped, and out_exponent is what fits the clamp.
//
// The test of the window also tells whether v can reach the clamp at all; mostly it cannot, and the step
// goes without.
#pragma once

#include "stylegan/filtered_lrelu/mma/activation.cuh"
#include "stylegan/filtered_lrelu/mma/bands.cuh"
#include "stylegan/filtered_lrelu/mma/row_ring.cuh"

namespace lltm_jit {

template <typename K>
struct Scales {
  using scalar_t = typename K::scalar;
  static constexpr bool kHalf = std::is_same_v<scalar_t, Half>;
  static constexpr int kMostDoublings = 30;

  float clamp, reach;  // of v at exponent 0; the largest |v| for |x| <= 1
  float result;        // what sums at exponent 0 are multiplied by
  int clamp_exponent;  // the largest out_exponent of clamped numbers
  int in_exponent, out_exponent;
  float in_scale, out_scale;  // 2^-in_exponent, result 2^out_exponent

  __device__ __forceinline__ Scales(const MmaCall& call, float up_scale, float up_gain,
                                    float down_scale)
      : clamp(call.clamp * up_scale * up_scale),
        reach(up_gain * up_gain * 1.01f),
        result(call.gain / (up_scale * up_scale) / (down_scale * down_scale)),
        clamp_exponent(binary_exponent(clamp) + (sizeof(scalar_t) == 2 ? 4 : 0)),
        in_exponent(0),
        out_exponent(0),
        in_scale(1),
        out_scale(result) {}

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
    return !((largest + fabsf(bias)) * reach < clamp);
  }

  // Takes new exponents; the factor for sums that are carried on.
  __device__ __forceinline__ float change(int in, int out) {
    const float factor = power_of_two(min(max(out_exponent - out, -126), 126));
    in_exponent = in;
    out_exponent = out;
    in_scale = power_of_two(-in);
    out_scale = result * power_of_two(out);
    return factor;
  }
  __device__ __forceinline__ float scaled_clamp() const {
    return clamp * power_of_two(min(max(-out_exponent, -126), 126));
  }
  __device__ __forceinline__ int doublings() const {
    return min(in_exponent - out_exponent, kMostDoublings);
  }
};

}  // namespace lltm_jit
