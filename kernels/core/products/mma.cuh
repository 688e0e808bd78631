// The tensor cores' products of a warp: 16 x 8 sums in float, of 16-bit operands with 16 k. For code of
// chips of 8.0 and later.
//
// Note [Fragments]
// Lane l has of a matrix of 8 x 8 halves the elements (l / 4, l % 4 * 2) and the one to its right,
// in a register. A (16 x 16) is four such matrices, top and bottom of the left half, then of the
// right; B (16 x 8) is two, top and bottom, each transposed; the sums (16 x 8) are two, top and
// bottom. The sums of two neighbouring products are therefore the operand A of the next one as they
// are, and their transposes are operands B.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// sums += a b. Volatile, so that it stays between the loads and stores around it.
template <typename scalar_t>
__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
#define LLTM_JIT_MMA(type)                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_MMA("f16");
  } else {
    LLTM_JIT_MMA("bf16");
  }
#undef LLTM_JIT_MMA
}

// The same of floats as TF32, with 8 k. Lane l has of A the elements (l / 4, l % 4) and (l / 4 + 8, l % 4), then those
// four columns to the right; and of B (l % 4, l / 4) and the one four rows below.
__device__ __forceinline__ void mma_tf32(float (&sums)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace lltm_jit
