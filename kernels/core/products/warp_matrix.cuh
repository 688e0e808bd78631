// Tensor-core products that stay in a warp's registers: 16 x 8 sums at a time, of half operands.
// Sums in half with k = 16 need code for chips of 8.0 or later. See Note [Fragments] (mma.cuh).
#pragma once

#include <cstdint>

#include "core/products/mma.cuh"

namespace lltm_jit {

// Sums in half: register r has row l / 4 + 8 r.
struct HalfSums {
  uint32_t value[2];
};

// Sums in float: elements 2 r and 2 r + 1 are those of register r of HalfSums.
struct FloatSums {
  float value[4];
};

// a b + c, with k = 16, for operands of a 16-bit type.
template <typename scalar_t>
LLTM_JIT_DEVICE FloatSums multiply_add_as(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                          FloatSums c) {
  mma<scalar_t>(c.value, a, b);
  return c;
}
// The same for halves.
LLTM_JIT_DEVICE HalfSums multiply_add(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                      const HalfSums& c) {
  HalfSums d;
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
      "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
      : "=r"(d.value[0]), "=r"(d.value[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c.value[0]),
        "r"(c.value[1]));
  return d;
}
LLTM_JIT_DEVICE FloatSums multiply_add(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                       const FloatSums& c) {
  return multiply_add_as<Half>(a, b, c);
}

// The same with k = 8: the left half of A and the top of B.
LLTM_JIT_DEVICE HalfSums multiply_add(const uint32_t (&a)[2], const uint32_t& b,
                                      const HalfSums& c) {
  HalfSums d;
  asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%5, %6};"
      : "=r"(d.value[0]), "=r"(d.value[1])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c.value[0]), "r"(c.value[1]));
  return d;
}
LLTM_JIT_DEVICE FloatSums multiply_add(const uint32_t (&a)[2], const uint32_t& b,
                                       const FloatSums& c) {
  FloatSums d;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=f"(d.value[0]), "=f"(d.value[1]), "=f"(d.value[2]), "=f"(d.value[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c.value[0]), "f"(c.value[1]), "f"(c.value[2]),
        "f"(c.value[3]));
  return d;
}

// The transpose of an 8 x 8 matrix.
LLTM_JIT_DEVICE uint32_t transpose(uint32_t matrix) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
  return result;
}

// Loads kCount (2 or 4) matrices, or their transposes, from shared memory. Each eight lanes give
// the addresses of one matrix's rows, 16 bytes each; the other lanes may give any.
template <bool kTransposed, int kCount>
LLTM_JIT_DEVICE void load_matrices(uint32_t (&r)[kCount], uint32_t row) {
#define LLTM_JIT_LOAD(count, names, address, ...)                                            \
  if constexpr (kTransposed) {                                                               \
    asm volatile("ldmatrix.sync.aligned.m8n8." count ".trans.shared.b16 " names ", " address \
                 : __VA_ARGS__                                                               \
                 : "r"(row)                                                                  \
                 : "memory");                                                                \
  } else {                                                                                   \
    asm volatile("ldmatrix.sync.aligned.m8n8." count ".shared.b16 " names ", " address       \
                 : __VA_ARGS__                                                               \
                 : "r"(row)                                                                  \
                 : "memory");                                                                \
  }
  if constexpr (kCount == 4) {
    LLTM_JIT_LOAD("x4", "{%0, %1, %2, %3}", "[%4];", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
  } else {
    static_assert(kCount == 2);
    LLTM_JIT_LOAD("x2", "{%0, %1}", "[%2];", "=r"(r[0]), "=r"(r[1]))
  }
#undef LLTM_JIT_LOAD
}

// Stores the transposes of kCount (2 or 4) matrices to shared memory. Each eight lanes give the
// addresses of one matrix's rows; the other lanes may give any.
template <int kCount>
LLTM_JIT_DEVICE void store_transposed(uint32_t row, const uint32_t (&r)[kCount]) {
  static_assert(kCount == 2 || kCount == 4);
#if __CUDA_ARCH__ >= 900
  if constexpr (kCount == 4) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row),
                 "r"(r[0]), "r"(r[1])
                 : "memory");
  }
#else
  const int lane = threadIdx.x % 32;
  LLTM_JIT_UNROLLED2(m, kCount, k, 2) {
    const uint32_t to = __shfl_sync(~0u, row, m * 8 + lane % 4 * 2 + k) + lane / 4 * 2;
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<uint16_t>(r[m] >> 16 * k))
                 : "memory");
  }
#endif
}

}  // namespace lltm_jit
