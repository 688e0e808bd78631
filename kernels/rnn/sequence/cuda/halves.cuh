// Floats as tensor cores of 16 bits take them.
//
// Note [Floats in two halves]
// A float is the sum of two numbers of half, whose 22 bits and two signs are as good as its 24, if both are in
// half's range. So the numbers of a tile are scaled by a power of two, which brings the largest of them to
// 2^14: what is less by 2^28 loses bits then, none of which the largest one's products have. Of the four products
// of parts the smallest is below the last bit. That makes three products of 16 k, where the parts of Note [Single
// precision on tensor cores] make six of 8 k, in the same time each; and the weights' halves, which take no
// more room than the weights, are made once.
#pragma once

#include "rnn/sequence/cuda/words.cuh"

namespace lltm_jit {

__device__ __forceinline__ uint32_t magnitude_of(uint32_t number) { return number & 0x7fffffffu; }

// A power of two that brings a number of this magnitude to 2^14, and its inverse.
struct HalfScale {
  float scale, inverse;

  HalfScale() = default;
  __device__ __forceinline__ explicit HalfScale(uint32_t magnitude) {
    constexpr uint32_t kBias = 127, kTarget = 14;
    const uint32_t exponent = min(max(magnitude >> 23, 15u), 254u);  // both powers exist
    scale = __uint_as_float((2 * kBias + kTarget - exponent) << 23);
    inverse = __uint_as_float((exponent - kTarget) << 23);
  }
};

// That of a tile. magnitude: the largest of this lane's numbers; all lanes of a warp come to the same scale.
__device__ __forceinline__ HalfScale scale_of_tile(uint32_t magnitude) {
#if __CUDA_ARCH__ >= 800
  magnitude = __reduce_max_sync(~0u, magnitude);
#endif
  return HalfScale(magnitude);
}

struct HalfParts {
  uint32_t high, low;  // pairs

  HalfParts() = default;
  // The bits of two floats, and their scales.
  __device__ __forceinline__ HalfParts(uint32_t first, uint32_t second, float first_scale,
                                       float second_scale) {
    const float a = __uint_as_float(first) * first_scale;
    const float b = __uint_as_float(second) * second_scale;
    high = pack2<Half>(a, b);
    low = pack2<Half>(a - first_of<Half>(high), b - second_of<Half>(high));
  }
  __device__ __forceinline__ HalfParts(uint32_t first, uint32_t second, float scale)
      : HalfParts(first, second, scale, scale) {}
};

// A tile of weights, four numbers of k of one row, then of the row eight further on: operand A of the upper
// parts, then of the lower ones.
__device__ __forceinline__ Words<8> in_halves(const Words<8>& tile, float scale) {
  Words<8> parts;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = i % 2 * 4 + i / 2 * 2;
    const HalfParts pair(tile.value[at], tile.value[at + 1], scale);
    parts.value[i] = pair.high;
    parts.value[4 + i] = pair.low;
  }
  return parts;
}

// A tile of B.
struct FloatOperand {
  Words<2> high, low;
  float inverse;  // of its scale and the weights'

  FloatOperand() = default;
  __device__ __forceinline__ FloatOperand(const Words<4>& four, float weights_inverse) {
    uint32_t magnitude = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) magnitude = max(magnitude, magnitude_of(four.value[i]));
    const HalfScale scale = scale_of_tile(magnitude);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const HalfParts pair(four.value[2 * i], four.value[2 * i + 1], scale.scale);
      high.value[i] = pair.high;
      low.value[i] = pair.low;
    }
    inverse = scale.inverse * weights_inverse;
  }
};

}  // namespace lltm_jit
