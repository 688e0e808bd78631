// Two 16-bit floats in a register, for kernels that compute in half, without <cuda_fp16.h>. The
// first of a pair is in the lower bits. max_magnitude2() needs code for chips of 8.0 or later.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// Rounds to nearest, ties to even.
template <typename scalar_t>
LLTM_JIT_DEVICE uint32_t pack2(float first, float second) {
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
LLTM_JIT_DEVICE float first_of(uint32_t pair) {
  return to_opmath(scalar_t{static_cast<uint16_t>(pair)});
}
template <typename scalar_t>
LLTM_JIT_DEVICE float second_of(uint32_t pair) {
  return to_opmath(scalar_t{static_cast<uint16_t>(pair >> 16)});
}

// The larger of a, which is not negative, and the magnitude of b. A NaN stays a NaN.
template <typename scalar_t>
LLTM_JIT_DEVICE uint32_t max_magnitude2(uint32_t a, uint32_t b) {
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

}  // namespace lltm_jit
