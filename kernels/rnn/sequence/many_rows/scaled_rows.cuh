// Floats as operands in Note [Many rows] (shape.h): halves, with a scale for each eight numbers of a row.
#pragma once

#include "core/products/warp_matrix.cuh"
#include "rnn/sequence/numbers/halves.cuh"

namespace lltm_jit {

// Two numbers of a row, scaled. Four neighbouring lanes have the eight numbers that share a scale.
// The scale is kept as the exponent of its inverse. All lanes of a warp must call this.
struct ScaledTwo {
  uint32_t halves;
  uint8_t exponent;

  LLTM_JIT_DEVICE ScaledTwo(float first, float second) {
    float largest = fmaxf(fabsf(first), fabsf(second));
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
    }
    const HalfScale of_eight(largest);
    halves = pack2<Half>(first * of_eight.scale, second * of_eight.scale);
    exponent = static_cast<uint8_t>(__float_as_uint(of_eight.inverse) >> 23);
  }
};

// A lane's two rows in a tile. Their exponents are in shared memory, [rows][kChunks] of eight bytes.
template <int kChunks>
struct RowExponents {
  uint32_t rows[2];
  int largest[2];

  LLTM_JIT_DEVICE explicit RowExponents(uint32_t exponents) {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16 + lane / 4;
    LLTM_JIT_UNROLLED(i, 2) {
      rows[i] = exponents + (first + 8 * i) * kChunks * 8;
      uint32_t four = 0;
      for (int chunk = lane % 4; chunk < kChunks; chunk += 4) {
        const auto both = load_shared<2>(rows[i] + chunk * 8);
        four = __vmaxu4(four, __vmaxu4(both.value[0], both.value[1]));
      }
      four = __vmaxu4(four, four >> 16);
      four = max(four & 0xff, four >> 8 & 0xff);
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        four = max(four, __shfl_xor_sync(~0u, four, lanes));
      }
      largest[i] = static_cast<int>(four);
    }
  }

  // A pair of equal factors, which bring an eight's numbers to the row's scale.
  LLTM_JIT_DEVICE uint32_t factor(int i, const Words<2>& chunk, int eight) const {
    constexpr int kBias = 127;
    const int exponent = int(chunk.value[eight / 4] >> eight % 4 * 8 & 0xff);
    const float power = __int_as_float(max(exponent - largest[i] + kBias, 0) << 23);
    return pack2<Half>(power, power);
  }
  LLTM_JIT_DEVICE float inverse(int i) const { return __int_as_float(largest[i] << 23); }
};

LLTM_JIT_DEVICE uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Loads the 16 rows of a warp for 16 of k as operand A, from the address of a tile's chunk.
template <typename Exponents>
LLTM_JIT_DEVICE void load_scaled(uint32_t (&a)[4], uint32_t tile, int k, const Exponents& exponents,
                                 const Words<2> (&of_chunk)[2]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
  load_matrices<false>(a, tile + row * 128 + ((2 * k + lane / 16) ^ (lane & 7)) * 16);
  LLTM_JIT_UNROLLED(m, 4) {
    a[m] = multiply_pairs(a[m], exponents.factor(m % 2, of_chunk[m % 2], 2 * k + m / 2));
  }
}

}  // namespace lltm_jit
