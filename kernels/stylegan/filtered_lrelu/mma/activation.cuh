// The leaky ReLU on a tile of v, 16 x 16 samples in a warp's registers, and its signs.
//
// A lane's samples are four pairs: pair 2 h + r is at row l / 4 + 8 r, columns l % 4 * 2 + 8 h and
// the next. In a word of the sign map (see sign_map.h) the first sample of pair p of tile c, of
// four, has the bit 15 - p - 4 c, the second that plus 16.
#pragma once

#include "stylegan/filtered_lrelu/filtered_lrelu.h"
#include "stylegan/filtered_lrelu/mma/operands.cuh"

namespace lltm_jit {

// The numbers of it that a walk needs, as halves for the 16-bit types.
//
// Note [Slopes]
// With a slope from -1 to 1, act(v) = max(v, slope v): two instructions, nothing is rounded but
// what the slope multiplies, and nothing grows. For any other one, act(v) = -slope act'(-v), where
// act' has the slope 1 / slope; the sign goes into the taps and the factor into the results.
template <typename scalar_t, Signs kSigns>
struct Activation {
  uint32_t slope, pass;  // of a negative number, and, where signs are read, of any other
  uint32_t limit;        // the clamp
  uint32_t boost[2];     // see Note [The running exponent]

  __device__ __forceinline__ Activation(float slope_, float pass_)
      : slope(pack2<Half>(slope_, slope_)), pass(pack2<Half>(pass_, pass_)) {}
  __device__ __forceinline__ void set_clamp(float clamp, int doublings) {
    limit = pack2<Half>(clamp, clamp);
    const float first = power_of_two(doublings / 2),
                second = power_of_two(doublings - doublings / 2);
    boost[0] = pack2<Half>(first, first);
    boost[1] = pack2<Half>(second, second);
  }

  // v becomes an operand of the next product. `negative` and `clamped` are the words of the map for
  // four tiles, of which this is one, and are read, or added to; the latter only where kClamp is
  // set.
  template <bool kClamp>
  __device__ __forceinline__ void apply(const HalfSums (&v)[2], int tile, uint32_t& negative,
                                        uint32_t& clamped, uint32_t (&result)[4]) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int shift = p + 4 * tile;
      uint32_t x = v[p / 2].value[p % 2];
      if constexpr (kSigns == Signs::Read) {
        const uint32_t mask = spread_bits2(negative, shift);
        uint32_t factor = (pass & ~mask) | (slope & mask);
        if constexpr (kClamp) factor &= ~spread_bits2(clamped, shift);
        x = half2_multiply(x, factor);
      } else {
        if constexpr (kSigns == Signs::Write) negative |= (x & 0x80008000u) >> shift;
        x = half2_max(x, half2_multiply(x, slope));
        if constexpr (kClamp) {
          x = half2_multiply(half2_multiply(x, boost[0]), boost[1]);
          if constexpr (kSigns == Signs::Write) clamped |= half2_magnitude_above(x, limit) >> shift;
          x = half2_max(half2_min(x, limit), limit ^ 0x80008000u);
        }
      }
      result[p] = x;
    }
  }
};

template <Signs kSigns>
struct Activation<float, kSigns> {
  float slope, pass, limit, boost;

  __device__ __forceinline__ Activation(float slope_, float pass_) : slope(slope_), pass(pass_) {}
  __device__ __forceinline__ void set_clamp(float clamp, int doublings) {
    limit = clamp;
    boost = power_of_two(doublings);
  }

  template <bool kClamp>
  __device__ __forceinline__ void apply(const FloatSums (&v)[2], int tile, uint32_t& negative,
                                        uint32_t& clamped, SplitPair (&result)[4]) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      float x[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int bit = 15 + 16 * e - p - 4 * tile;
        x[e] = v[p / 2].value[p % 2 * 2 + e];
        if constexpr (kSigns == Signs::Read) {
          x[e] *= negative >> bit & 1 ? slope : pass;
          if constexpr (kClamp) x[e] = clamped >> bit & 1 ? 0.f : x[e];
        } else {
          if constexpr (kSigns == Signs::Write) {
            negative |= (__float_as_uint(x[e]) & 0x80000000u) >> (31 - bit);
          }
          x[e] = larger_or_nan(x[e], x[e] * slope);
          if constexpr (kClamp) {
            x[e] *= boost;
            if constexpr (kSigns == Signs::Write) clamped |= uint32_t(fabsf(x[e]) > limit) << bit;
            x[e] = smaller_or_nan(larger_or_nan(x[e], -limit), limit);
          }
        }
      }
      result[p] = make_pair<SplitPair>(x[0], x[1]);
    }
  }

 private:
  static __device__ __forceinline__ float larger_or_nan(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
  }
  static __device__ __forceinline__ float smaller_or_nan(float a, float b) {
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
  }
};

}  // namespace lltm_jit
