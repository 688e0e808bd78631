// Two 16-bit floats in a register, for kernels that compute in half, without <cuda_fp16.h>. The
// first of a pair is in the lower bits. pack2(), first_of() and second_of() work on all chips, the
// others need code for chips of 8.0 or later.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// Rounds to nearest, ties to even.
template <typename scalar_t>
__device__ __forceinline__ uint32_t pack2(float first, float second) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return from_opmath<scalar_t>(first).bits | uint32_t(from_opmath<scalar_t>(second).bits) << 16;
#endif
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

// The larger of a, which is not negative, and the magnitude of b. A NaN stays a NaN.
template <typename scalar_t>
__device__ __forceinline__ uint32_t max_magnitude2(uint32_t a, uint32_t b) {
  uint32_t magnitude, larger;
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("abs.f16x2 %0, %1;" : "=r"(magnitude) : "r"(b));
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(magnitude));
  } else {
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitude) : "r"(b));
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(magnitude));
  }
  return larger;
}

__device__ __forceinline__ uint32_t half2_multiply(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// The larger of each pair of halves; a NaN stays a NaN.
__device__ __forceinline__ uint32_t half2_max(uint32_t a, uint32_t b) {
  uint32_t larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
// Clamps x to [-limit, limit].
__device__ __forceinline__ uint32_t half2_clamp(uint32_t x, uint32_t limit) {
  uint32_t clamped;
  asm("min.NaN.f16x2 %0, %1, %2;"
      : "=r"(clamped)
      : "r"(half2_max(x, limit ^ 0x80008000u)), "r"(limit));
  return clamped;
}
// Sets all bits of each half where |a| > b.
__device__ __forceinline__ uint32_t half2_magnitude_above(uint32_t a, uint32_t b) {
  uint32_t above;
  asm("{.reg .b32 magnitude;\n"
      "abs.f16x2 magnitude, %1;\n"
      "set.gt.u32.f16x2 %0, magnitude, %2;}"
      : "=r"(above)
      : "r"(a), "r"(b));
  return above;
}

// Selects bytes of `a` (0 to 3) and `b` (4 to 7) by the digits of kChoice, the last digit first. A
// digit plus 8 fills the byte with the highest bit of the one selected.
template <uint32_t kChoice>
__device__ __forceinline__ uint32_t permute_bytes(uint32_t a, uint32_t b) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "n"(kChoice));
  return bytes;
}
// Fills each byte with a sign: bytes 0 and 2 with those of the halves of a, 1 and 3 with those of b.
__device__ __forceinline__ uint32_t sign_bytes2(uint32_t a, uint32_t b) {
  return permute_bytes<0xfbd9>(a, b);
}
// The reverse: fills each half with the highest bit of byte r, or r + 2.
__device__ __forceinline__ uint32_t spread_bytes2(uint32_t bytes, int r) {
  return r == 0 ? permute_bytes<0xaa88>(bytes, 0) : permute_bytes<0xbb99>(bytes, 0);
}

}  // namespace lltm_jit
