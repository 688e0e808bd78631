// The leaky ReLU on a tile of v, 16 x 16 samples in a warp's registers, and the samples' signs.
//
// A lane has four pairs of samples: pair 2 h + r is at row l / 4 + 8 r, columns l % 4 * 2 + 8 h and
// the next. A word of the sign map (sign_map.h) is for four tiles: of a pair in tile c, the first
// sample has bit 7 - h - 2 c of byte r, the second that bit of byte r + 2.
#pragma once

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/operands.cuh"

namespace lltm_jit {

// Whether v can reach the clamp, and whether v is multiplied first: Note [The running exponent].
enum class Clamp : int8_t { Never, Plain, Boosted };

// The larger of each pair of halves; a NaN stays a NaN.
LLTM_JIT_DEVICE uint32_t half2_max(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
// Clamps x to [-limit, limit].
LLTM_JIT_DEVICE uint32_t half2_clamp(uint32_t x, uint32_t limit) {
  uint32_t clamped;
  asm("min.NaN.f16x2 %0, %1, %2;"
      : "=r"(clamped)
      : "r"(half2_max(x, limit ^ 0x80008000u)), "r"(limit));
  return clamped;
}
// Sets all bits of each half where |a| > b.
LLTM_JIT_DEVICE uint32_t half2_magnitude_above(uint32_t a, uint32_t b) {
  uint32_t above;
  asm("{.reg .b32 magnitude;\n"
      "abs.f16x2 magnitude, %1;\n"
      "set.gt.u32.f16x2 %0, magnitude, %2;}"
      : "=r"(above)
      : "r"(a), "r"(b));
  return above;
}
// Fills each half with the highest bit of byte r, or r + 2, of a word of the map.
LLTM_JIT_DEVICE uint32_t spread_bytes(uint32_t word, int r) {
  return choose_bytes(word, 0, r == 0 ? 0xaa88 : 0xbb99);
}

// The activation's numbers that a walk needs, as halves for the 16-bit types.
//
// Note [Slopes]
// With a slope from -1 to 1, act(v) = max(v, slope v): two instructions, which round only the product with
// the slope and make nothing larger. Calls that compute signs with another slope do not run here. Where
// signs are read, both factors are divided by the slope's magnitude, and the results are multiplied by it.
template <typename scalar_t, Signs kSigns>
struct Activation {
  uint32_t slope, pass;  // factors of a negative number and, where signs are read, of others
  uint32_t limit;        // the clamp
  uint32_t boost;        // also a factor of slope

  LLTM_JIT_DEVICE Activation(float slope_, float pass_)
      : slope(pack2<Half>(slope_, slope_)), pass(pack2<Half>(pass_, pass_)) {}
  template <Clamp kClamp>
  LLTM_JIT_DEVICE void set_clamp(float clamp, float boost_) {
    limit = pack2<Half>(clamp, clamp);
    if constexpr (kClamp == Clamp::Boosted) {
      boost = pack2<Half>(boost_, boost_);
      slope = half2_multiply(slope, boost);
    }
  }

  // Turns v into an operand of the next product. `negative` and `clamped` are the words of the map
  // for four tiles, of which this is one. They are read, or bits are added to them; `clamped` is
  // used only where v can reach the clamp.
  template <Clamp kClamp>
  LLTM_JIT_DEVICE void apply(const HalfSums (&v)[2], int tile, uint32_t& negative,
                             uint32_t& clamped, uint32_t (&result)[4]) const {
    LLTM_JIT_UNROLLED(half, 2) {
      const int shift = half + 2 * tile;
      const auto& x = v[half].value;
      if constexpr (kSigns == Signs::Write) {
        // Bytes 0 and 2 are the signs of x[0], 1 and 3 those of x[1].
        negative |= choose_bytes(x[0], x[1], 0xfbd9) & 0x80808080u >> shift;
      }
      LLTM_JIT_UNROLLED(r, 2) {
        uint32_t y;
        if constexpr (kSigns == Signs::Read) {
          const uint32_t mask = spread_bytes(negative << shift, r);
          uint32_t factor = (pass & ~mask) | (slope & mask);
          if constexpr (kClamp != Clamp::Never) factor &= ~spread_bytes(clamped << shift, r);
          y = half2_multiply(x[r], factor);
        } else {
          const uint32_t scaled = kClamp == Clamp::Boosted ? half2_multiply(x[r], boost) : x[r];
          y = half2_max(scaled, half2_multiply(x[r], slope));
          if constexpr (kClamp != Clamp::Never) {
            if constexpr (kSigns == Signs::Write) {
              clamped |= half2_magnitude_above(y, limit) & (0x00800080u << 8 * r) >> shift;
            }
            y = half2_clamp(y, limit);
          }
        }
        result[2 * half + r] = y;
      }
    }
  }
};

template <Signs kSigns>
struct Activation<float, kSigns> {
  float slope, pass, limit, boost;

  LLTM_JIT_DEVICE Activation(float slope_, float pass_) : slope(slope_), pass(pass_) {}
  template <Clamp kClamp>
  LLTM_JIT_DEVICE void set_clamp(float clamp, float boost_) {
    limit = clamp;
    boost = boost_;
  }

  template <Clamp kClamp>
  LLTM_JIT_DEVICE void apply(const FloatSums (&v)[2], int tile, uint32_t& negative,
                             uint32_t& clamped, SplitPair (&result)[4]) const {
    LLTM_JIT_UNROLLED(half, 2) {
      if constexpr (kSigns == Signs::Write) {
        negative |= sign_bytes(v[half].value) & 0x80808080u >> (half + 2 * tile);
      }
      FloatSums y;
      LLTM_JIT_UNROLLED(e, 4) {
        const int bit = 7 - half - 2 * tile + 8 * (e / 2) + 16 * (e % 2);
        float x = v[half].value[e];
        if constexpr (kSigns == Signs::Read) {
          x *= negative >> bit & 1 ? slope : pass;
          if constexpr (kClamp != Clamp::Never) x = clamped >> bit & 1 ? 0.f : x;
        } else {
          x = larger_or_nan(x, x * slope);
          if constexpr (kClamp == Clamp::Boosted) x *= boost;
          if constexpr (kClamp != Clamp::Never) {
            if constexpr (kSigns == Signs::Write) clamped |= uint32_t(fabsf(x) > limit) << bit;
            x = smaller_or_nan(larger_or_nan(x, -limit), limit);
          }
        }
        y.value[e] = x;
      }
      SplitPair pairs[2];
      to_pairs(y, pairs);
      result[2 * half] = pairs[0];
      result[2 * half + 1] = pairs[1];
    }
  }

 private:
  // Fills byte r + 2 e with the sign of number 2 r + e.
  static LLTM_JIT_DEVICE uint32_t sign_bytes(const float (&x)[4]) {
    const auto bits = [&](int e) { return __float_as_uint(x[e]); };
    const uint32_t first = choose_bytes(bits(0), bits(2), 0xfbfb);
    const uint32_t second = choose_bytes(bits(1), bits(3), 0xfbfb);
    return choose_bytes(first, second, 0x5410);
  }
};

}  // namespace lltm_jit
