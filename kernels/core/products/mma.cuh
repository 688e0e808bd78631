// Tensor-core products of a warp: 16 x 8 sums in float, of 16-bit operands with a depth (k) of 16.
// Chips before 8.0 multiply halves only, with k = 8; they compute products of bfloat16 in float.
//
// Note [Fragments]
// Of a matrix of 8 x 8 halves, lane l holds the elements (l / 4, l % 4 * 2) and the one to its
// right in a register. A (16 x 16) is four such matrices: top and bottom of the left half, then of
// the right. B (16 x 8) is two, top and bottom, each transposed. The sums (16 x 8) are two, top and
// bottom. So the sums of two neighbouring products are an operand A of the next product as they
// are, and their transposes are operands B.
#pragma once

#include <cstdint>

#include "core/types/half2.cuh"

namespace lltm_jit {

// sums += a b without tensor cores. Each of four lanes has a quarter of the depth of its row of A and column of B.
template <typename scalar_t>
LLTM_JIT_DEVICE void multiply_in_floats(float (&sums)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1  // or a kernel of many products takes ptxas a minute
  for (int quarter = 0; quarter < 4; ++quarter) {
    LLTM_JIT_UNROLLED2(half, 2, e, 4) {
      const uint32_t of_a = __shfl_sync(~0u, a[half * 2 + e / 2], lane / 4 * 4 + quarter);
      const uint32_t of_b = __shfl_sync(~0u, b[half], (lane % 4 * 2 + e % 2) * 4 + quarter);
      sums[e] = fmaf(first_of<scalar_t>(of_a), first_of<scalar_t>(of_b), sums[e]);
      sums[e] = fmaf(second_of<scalar_t>(of_a), second_of<scalar_t>(of_b), sums[e]);
    }
  }
}

// sums += a b. Volatile, so that the compiler keeps it between the loads and stores around it.
template <typename scalar_t>
LLTM_JIT_DEVICE void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
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
#else
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_UNROLLED(half, 2) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[half * 2]), "r"(a[half * 2 + 1]), "r"(b[half]));
    }
  } else {
    multiply_in_floats<scalar_t>(sums, a, b);
  }
#endif
}

// The same for floats as TF32, with k = 8, for chips of 8.0 and later. Of A, lane l has the elements (l / 4, l %
// 4), (l / 4 + 8, l % 4) and those four columns to the right; of B, (l % 4, l / 4) and the one four rows below.
LLTM_JIT_DEVICE void mma_tf32(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace lltm_jit
