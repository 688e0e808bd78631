// Floats as operands of 16-bit tensor cores.
//
// Note [Floats in two halves]
// A float is the sum of two halves, whose 22 bits and two signs are as good as its 24 bits, if both halves are in
// range. So numbers are scaled by a power of two that brings the largest of them to 2^14. Numbers that are smaller than
// the largest by a factor of more than 2^17 then lose bits; the error is at most 2^-39 of the largest number. This
// matters only where small weights meet large states, or large weights small states: for example if a layer's units
// differ in size, which a scale of whole rows cannot change. The layers' docstring says so, and test_tf32.py has the
// bound. Of the four products of parts, the smallest is below the last bit, which leaves three products with k = 16.
// The parts of Note [Single precision on tensor cores] need six products with k = 8, each of which takes as long. The
// weights' halves are made once, and take no more room than the weights.
//
// Note [Floats in one half]
// TF32 keeps 11 bits of a float, as half does. If the user allows TF32, only the upper parts are
// multiplied: one product instead of three, with weights of half the size. The scales are the same,
// so that rows stay independent. In one small block, where the weights have room and everything
// waits for a row's scale, the tensor cores multiply TF32 itself: two products with k = 8.
//
// Note [Sent as multiplied]
// In a small block of two rows, one lane makes a number, and every warp multiplies it. So it is sent in the form that
// tensor cores read: rounded to TF32, or in halves, for which its scale must be known. Forward, the scale is 2^14 if
// the cell says that its output is within -1 and 1; the initial h, which may be larger, has a scale of its own.
// Backward, each of a warp's two rows has a scale, for its units of all gates. Lower halves are scaled by another 2^11,
// so that they are in range whenever the upper halves are, and their products are summed separately: small numbers keep
// their bits even if all are small, forward down to 2^-28. Below that, an error of 2^-50 remains.
//
// A warp's weights have one scale. In B each row of the batch has its own scale, for several tiles
// at once (kScaled in persistent/products/warp_weights.cuh). So a row's results depend on no other
// row, even if that row is large, infinite or NaN.
#pragma once

#include "rnn/sequence/numbers/words.cuh"

namespace lltm_jit {

LLTM_JIT_DEVICE uint32_t magnitude_of(uint32_t number) { return number & 0x7fffffffu; }

// The power of two that brings a number of this magnitude to 2^14, and its inverse.
struct HalfScale {
  float scale, inverse;

  HalfScale() = default;
  LLTM_JIT_DEVICE explicit HalfScale(uint32_t magnitude) {
    constexpr uint32_t kBias = 127, kTarget = 14;
    const uint32_t exponent = min(max(magnitude >> 23, 15u), 254u);  // both powers exist
    scale = __uint_as_float((2 * kBias + kTarget - exponent) << 23);
    inverse = __uint_as_float((exponent - kTarget) << 23);
  }
  // The same in fewer instructions, for the loops of steps.
  LLTM_JIT_DEVICE explicit HalfScale(float magnitude) {
    constexpr int kExponent = 1 << 23, kTarget = 14, kBias = 127;
    const int bits = max(__float_as_int(magnitude) - kTarget * kExponent, kExponent) & -kExponent;
    inverse = __int_as_float(bits);
    scale = __int_as_float(2 * kBias * kExponent - bits);
  }
};

// The scale of a warp's weights. magnitude: the largest one among this lane's weights.
LLTM_JIT_DEVICE HalfScale scale_of_warp(uint32_t magnitude) {
#if __CUDA_ARCH__ >= 800
  return HalfScale(__reduce_max_sync(~0u, magnitude));
#else
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    magnitude = max(magnitude, __shfl_xor_sync(~0u, magnitude, lanes));
  }
  return HalfScale(magnitude);
#endif
}

struct HalfParts {
  uint32_t high, low;  // pairs of halves

  HalfParts() = default;
  // Splits two floats, given their bits and scales.
  LLTM_JIT_DEVICE HalfParts(uint32_t first, uint32_t second, float first_scale,
                            float second_scale) {
    const float a = __uint_as_float(first) * first_scale;
    const float b = __uint_as_float(second) * second_scale;
    high = pack2<Half>(a, b);
    low = pack2<Half>(a - first_of<Half>(high), b - second_of<Half>(high));
  }
  LLTM_JIT_DEVICE HalfParts(uint32_t first, uint32_t second, float scale)
      : HalfParts(first, second, scale, scale) {}
};

// Rounds floats to TF32.
template <int kWords>
LLTM_JIT_DEVICE Words<kWords> rounded_to_tf32(const Words<kWords>& w) {
  Words<kWords> result;
  LLTM_JIT_UNROLLED(i, kWords) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result.value[i]) : "f"(__uint_as_float(w.value[i])));
  }
  return result;
}

// Splits a tile of weights: four numbers of k of one row, then of the eighth row after it. The
// upper parts, and the lower ones if there is room for them, become operands A.
template <typename Parts>
LLTM_JIT_DEVICE Parts in_halves(const Words<8>& tile, float scale) {
  Parts parts;
  LLTM_JIT_UNROLLED(i, 4) {
    const int at = i % 2 * 4 + i / 2 * 2;
    const HalfParts pair(tile.value[at], tile.value[at + 1], scale);
    parts.value[i] = pair.high;
    if constexpr (sizeof parts == sizeof tile) parts.value[4 + i] = pair.low;
  }
  return parts;
}

LLTM_JIT_DEVICE float largest_of(const Words<4>& four) {
  const auto magnitude = [&](int i) { return fabsf(__uint_as_float(four.value[i])); };
  return fmaxf(fmaxf(magnitude(0), magnitude(1)), fmaxf(magnitude(2), magnitude(3)));
}

// The scales of a tile of B. A lane has numbers of one row, and sums of two rows.
struct RowScales {
  float scale;       // of the numbers' row
  float inverse[2];  // of the sums' rows and the weights

  RowScales() = default;
  // largest: the largest magnitude of this lane's numbers.
  LLTM_JIT_DEVICE RowScales(float largest, float weights_inverse) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
    }
    const HalfScale of_row(largest);
    scale = of_row.scale;
    const float both = of_row.inverse * weights_inverse;
    LLTM_JIT_UNROLLED(i, 2) {
      // Lanes from 4 r on have row r; the index is taken modulo 32.
      inverse[i] = __shfl_sync(~0u, both, keep(threadIdx.x) * 8 + i * 4);
    }
  }
};

// Note [Sent as multiplied]: the scale of a lane's row, if even lanes have one row and odd lanes
// another. largest: the largest magnitude of this lane's numbers.
LLTM_JIT_DEVICE HalfScale scale_of_two_rows(float largest) {
#pragma unroll
  for (int lanes = 2; lanes < 32; lanes *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
  }
  return HalfScale(largest);
}
// Splits a float into halves.
constexpr float kLowerScale = 1 << 11, kScaleOfBounded = 1 << 14;
LLTM_JIT_DEVICE uint32_t in_halves(float number, float scale) {
  const float scaled = number * scale;
  const float upper = first_of<Half>(pack2<Half>(scaled, 0));
  return pack2<Half>(scaled, (scaled - upper) * kLowerScale);
}

// A tile of B as operands.
struct FloatOperand {
  Words<2> high, low;
  float inverse[2];  // RowScales::inverse

  FloatOperand() = default;
  // Takes numbers that are already split: the upper halves, then the lower ones.
  LLTM_JIT_DEVICE explicit FloatOperand(const Words<4>& halves)
      : high{halves.value[0], halves.value[1]}, low{halves.value[2], halves.value[3]} {}
  LLTM_JIT_DEVICE FloatOperand(const Words<4>& four, const RowScales& scales)
      : inverse{scales.inverse[0], scales.inverse[1]} {
    LLTM_JIT_UNROLLED(i, 2) {
      const HalfParts pair(four.value[2 * i], four.value[2 * i + 1], scales.scale);
      high.value[i] = pair.high;
      low.value[i] = pair.low;
    }
  }
};

}  // namespace lltm_jit
