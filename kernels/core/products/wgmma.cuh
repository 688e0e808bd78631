// A warpgroup's share of a matrix product on the tensor cores of chips of 9.0, for the 16-bit types:
// 64 x kN sums in registers, the right operand in shared memory, the left one there or in registers.
//
// The rows of both operands run along k, 64 elements (128 bytes) at a time. Eight rows make a block
// of 1024 bytes, at a multiple of 1024. In it, 16-byte chunk c of row r lies at chunk c ^ r, so
// that the chunks of eight rows touch different banks (PTX ISA, "128-byte swizzle").
#pragma once

#include <cstdint>

#include "core/memory/bulk_copy.cuh"

// Only code for 9.0 alone ("9.0a") has these instructions; code for "9.0 and later" has not.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LLTM_JIT_HAS_WGMMA 1
#else
#define LLTM_JIT_HAS_WGMMA 0
#endif

namespace lltm_jit {

constexpr int kSwizzledRow = 64;  // elements

// Describes eight rows, and those that follow, to the instruction: the address, the 1024 bytes from
// eight rows to the next in units of 16 bytes, and the layout.
template <typename scalar_t>
__device__ __forceinline__ uint64_t matrix_descriptor(const scalar_t* rows) {
  return shared_address(rows) >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// clang-format off
#define LLTM_JIT_SUMS_4(i)                                                                         \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define LLTM_JIT_SUMS_12(i) LLTM_JIT_SUMS_4(i), LLTM_JIT_SUMS_4(i + 4), LLTM_JIT_SUMS_4(i + 8)
#define LLTM_JIT_SUMS_36 LLTM_JIT_SUMS_12(0), LLTM_JIT_SUMS_12(12), LLTM_JIT_SUMS_12(24)
#define LLTM_JIT_SUMS_60 LLTM_JIT_SUMS_36, LLTM_JIT_SUMS_12(36), LLTM_JIT_SUMS_12(48)
#define LLTM_JIT_NAMES_36                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "               \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
#define LLTM_JIT_NAMES_60                                                                          \
  LLTM_JIT_NAMES_36 ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "               \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59"
#define LLTM_JIT_WGMMA(type)                                                                       \
  if constexpr (kN == 72) {                                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32." type "." type                       \
                 " {" LLTM_JIT_NAMES_36 "}, %36, %37, 1, 1, 1, 0, 0;"                              \
                 : LLTM_JIT_SUMS_36                                                                \
                 : "l"(a), "l"(b));                                                                \
  } else {                                                                                         \
    static_assert(kN == 120);                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n120k16.f32." type "." type                      \
                 " {" LLTM_JIT_NAMES_60 "}, %60, %61, 1, 1, 1, 0, 0;"                              \
                 : LLTM_JIT_SUMS_60                                                                \
                 : "l"(a), "l"(b));                                                                \
  }
// clang-format on

// Starts a product with k = 16 and does not wait for it. Element e of lane l of warp w is the sum
// at row 16 w + l / 4 + e / 2 % 2 * 8, column e / 4 * 8 + l % 4 * 2 + e % 2.
template <typename scalar_t, int kN>
__device__ __forceinline__ void wgmma(float (&sums)[kN / 2], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_WGMMA("f16")
  } else {
    LLTM_JIT_WGMMA("bf16")
  }
}

// The same with A in registers, in mma.sync's layout for the 16 rows of each warp. The registers
// must not change before wait_for_products() has waited for the product.
__device__ __forceinline__ void wgmma_of_registers(float (&sums)[64], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" LLTM_JIT_NAMES_60
               ", %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
               : LLTM_JIT_SUMS_60, LLTM_JIT_SUMS_4(60)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef LLTM_JIT_WGMMA
#undef LLTM_JIT_NAMES_60
#undef LLTM_JIT_NAMES_36
#undef LLTM_JIT_SUMS_60
#undef LLTM_JIT_SUMS_36
#undef LLTM_JIT_SUMS_12
#undef LLTM_JIT_SUMS_4

// Gives registers up to the block's other warpgroups, or takes theirs, until each thread has kCount.
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Call this before the first product whose sums or operands are in registers.
__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Starts the product of 64 rows of A and kN rows of B, over the rows' whole length.
template <typename scalar_t, int kN>
__device__ __forceinline__ void begin_products(float (&sums)[kN / 2], const scalar_t* a,
                                               const scalar_t* b) {
  const uint64_t a_rows = matrix_descriptor(a), b_rows = matrix_descriptor(b);
  fence_products();
#pragma unroll
  for (int k = 0; k < kSwizzledRow; k += 16) {
    const int chunks = k * int(sizeof(scalar_t)) / 16;
    wgmma<scalar_t, kN>(sums, a_rows + chunks, b_rows + chunks);
  }
  commit_products();
}

// Waits until at most kPending of the committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace lltm_jit
