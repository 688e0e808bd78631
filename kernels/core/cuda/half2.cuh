// Two 16-bit floats in a register: what kernels that compute in half do with them, without
// <cuda_fp16.h>. The first of a pair is in the lower bits. For code of chips of 8.0 and later.
#pragma once

#include <cstdint>

#include "core/cuda/types.cuh"

namespace lltm_jit {

// Rounds to nearest, ties to even.
template <typename scalar_t>
__device__ __forceinline__ uint32_t pack2(float first, float second) {
  uint32_t pair;
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
}

template <typename scalar_t>
__device__ __forceinline__ float first_of(uint32_t pair) {
  return to_opmath(scalar_t{static_cast<uint16_t>(pair)});
}
template <typename scalar_t>
__device__ __forceinline__ float second_of(uint32_t pair) {
  if constexpr (std::is_same_v<scalar_t, Half>) {
    return to_opmath(scalar_t{static_cast<uint16_t>(pair >> 16)});
  } else {
    return __uint_as_float(pair & 0xffff0000u);
  }
}

// The larger of a, which is not negative, and the magnitude of b. A NaN gives way to a number.
template <typename scalar_t>
__device__ __forceinline__ uint32_t max_magnitude2(uint32_t a, uint32_t b) {
  uint32_t magnitude, larger;
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("abs.f16x2 %0, %1;" : "=r"(magnitude) : "r"(b));
    asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(magnitude));
  } else {
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitude) : "r"(b));
    asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(magnitude));
  }
  return larger;
}

__device__ __forceinline__ uint32_t half2_multiply(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// A NaN stays one.
__device__ __forceinline__ uint32_t half2_max(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
__device__ __forceinline__ uint32_t half2_min(uint32_t a, uint32_t b) {
  uint32_t smaller;
  asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}
// The sign bit of each half where |a| > b.
__device__ __forceinline__ uint32_t half2_magnitude_above(uint32_t a, uint32_t b) {
  uint32_t above;  // 1.0 or 0.0
  asm("{.reg .b32 magnitude;\n"
      "abs.f16x2 magnitude, %1;\n"
      "set.gt.f16x2.f16x2 %0, magnitude, %2;}"
      : "=r"(above)
      : "r"(a), "r"(b));
  return above << 5 & 0x80008000u;
}

// Each half takes the sign of one bit of `word`: all its bits are that of bit 15 - shift (the first)
// and 31 - shift (the second).
__device__ __forceinline__ uint32_t spread_bits2(uint32_t word, int shift) {
  uint32_t mask;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(word << shift));
  return mask;
}

}  // namespace lltm_jit
