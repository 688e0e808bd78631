// A warpgroup's share of a matrix product on the tensor cores of chips of 9.0, for the 16-bit types: 64 x kN sums in
// registers, kN a multiple of eight, the right operand in shared memory, the left one there or in registers.
//
// The rows of both operands run along k, 64 elements (128 bytes) at a time. Eight rows make a block
// of 1024 bytes, at a multiple of 1024. In it, 16-byte chunk c of row r lies at chunk c ^ r, so
// that the chunks of eight rows touch different banks (PTX ISA, "128-byte swizzle").
#pragma once

#include <cstdint>

#include "core/math/scalar.h"
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
LLTM_JIT_DEVICE uint64_t matrix_descriptor(const scalar_t* rows) {
  return shared_address(rows) >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// The operands of a product with so many eights of columns: its sums, and their names in the instruction.
// clang-format off
#define LLTM_JIT_FOUR_SUMS(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define LLTM_JIT_SUMS_2 LLTM_JIT_FOUR_SUMS(0), LLTM_JIT_FOUR_SUMS(4)
#define LLTM_JIT_SUMS_3 LLTM_JIT_SUMS_2, LLTM_JIT_FOUR_SUMS(8)
#define LLTM_JIT_SUMS_4 LLTM_JIT_SUMS_3, LLTM_JIT_FOUR_SUMS(12)
#define LLTM_JIT_SUMS_5 LLTM_JIT_SUMS_4, LLTM_JIT_FOUR_SUMS(16)
#define LLTM_JIT_SUMS_6 LLTM_JIT_SUMS_5, LLTM_JIT_FOUR_SUMS(20)
#define LLTM_JIT_SUMS_7 LLTM_JIT_SUMS_6, LLTM_JIT_FOUR_SUMS(24)
#define LLTM_JIT_SUMS_8 LLTM_JIT_SUMS_7, LLTM_JIT_FOUR_SUMS(28)
#define LLTM_JIT_SUMS_9 LLTM_JIT_SUMS_8, LLTM_JIT_FOUR_SUMS(32)
#define LLTM_JIT_SUMS_10 LLTM_JIT_SUMS_9, LLTM_JIT_FOUR_SUMS(36)
#define LLTM_JIT_SUMS_11 LLTM_JIT_SUMS_10, LLTM_JIT_FOUR_SUMS(40)
#define LLTM_JIT_SUMS_12 LLTM_JIT_SUMS_11, LLTM_JIT_FOUR_SUMS(44)
#define LLTM_JIT_SUMS_13 LLTM_JIT_SUMS_12, LLTM_JIT_FOUR_SUMS(48)
#define LLTM_JIT_SUMS_14 LLTM_JIT_SUMS_13, LLTM_JIT_FOUR_SUMS(52)
#define LLTM_JIT_SUMS_15 LLTM_JIT_SUMS_14, LLTM_JIT_FOUR_SUMS(56)
#define LLTM_JIT_SUMS_16 LLTM_JIT_SUMS_15, LLTM_JIT_FOUR_SUMS(60)
#define LLTM_JIT_SUMS_17 LLTM_JIT_SUMS_16, LLTM_JIT_FOUR_SUMS(64)
#define LLTM_JIT_SUMS_18 LLTM_JIT_SUMS_17, LLTM_JIT_FOUR_SUMS(68)
#define LLTM_JIT_NAMES_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LLTM_JIT_NAMES_3 LLTM_JIT_NAMES_2 ", %8, %9, %10, %11"
#define LLTM_JIT_NAMES_4 LLTM_JIT_NAMES_3 ", %12, %13, %14, %15"
#define LLTM_JIT_NAMES_5 LLTM_JIT_NAMES_4 ", %16, %17, %18, %19"
#define LLTM_JIT_NAMES_6 LLTM_JIT_NAMES_5 ", %20, %21, %22, %23"
#define LLTM_JIT_NAMES_7 LLTM_JIT_NAMES_6 ", %24, %25, %26, %27"
#define LLTM_JIT_NAMES_8 LLTM_JIT_NAMES_7 ", %28, %29, %30, %31"
#define LLTM_JIT_NAMES_9 LLTM_JIT_NAMES_8 ", %32, %33, %34, %35"
#define LLTM_JIT_NAMES_10 LLTM_JIT_NAMES_9 ", %36, %37, %38, %39"
#define LLTM_JIT_NAMES_11 LLTM_JIT_NAMES_10 ", %40, %41, %42, %43"
#define LLTM_JIT_NAMES_12 LLTM_JIT_NAMES_11 ", %44, %45, %46, %47"
#define LLTM_JIT_NAMES_13 LLTM_JIT_NAMES_12 ", %48, %49, %50, %51"
#define LLTM_JIT_NAMES_14 LLTM_JIT_NAMES_13 ", %52, %53, %54, %55"
#define LLTM_JIT_NAMES_15 LLTM_JIT_NAMES_14 ", %56, %57, %58, %59"
#define LLTM_JIT_NAMES_16 LLTM_JIT_NAMES_15 ", %60, %61, %62, %63"
#define LLTM_JIT_NAMES_17 LLTM_JIT_NAMES_16 ", %64, %65, %66, %67"
#define LLTM_JIT_NAMES_18 LLTM_JIT_NAMES_17 ", %68, %69, %70, %71"
// PRODUCT(eights, columns, the five operand numbers after the sums).
#define LLTM_JIT_FOR_COLUMNS(PRODUCT)                                                              \
  PRODUCT(2, 16, 8, 9, 10, 11, 12) PRODUCT(3, 24, 12, 13, 14, 15, 16)                              \
  PRODUCT(4, 32, 16, 17, 18, 19, 20) PRODUCT(5, 40, 20, 21, 22, 23, 24)                            \
  PRODUCT(6, 48, 24, 25, 26, 27, 28) PRODUCT(7, 56, 28, 29, 30, 31, 32)                            \
  PRODUCT(8, 64, 32, 33, 34, 35, 36) PRODUCT(9, 72, 36, 37, 38, 39, 40)                            \
  PRODUCT(10, 80, 40, 41, 42, 43, 44) PRODUCT(11, 88, 44, 45, 46, 47, 48)                          \
  PRODUCT(12, 96, 48, 49, 50, 51, 52) PRODUCT(13, 104, 52, 53, 54, 55, 56)                         \
  PRODUCT(14, 112, 56, 57, 58, 59, 60) PRODUCT(15, 120, 60, 61, 62, 63, 64)                        \
  PRODUCT(16, 128, 64, 65, 66, 67, 68) PRODUCT(17, 136, 68, 69, 70, 71, 72)                        \
  PRODUCT(18, 144, 72, 73, 74, 75, 76)
#define LLTM_JIT_WGMMA(type, eights, columns, a_name, b_name)                                      \
  if constexpr (kN == columns) {                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type              \
                 " {" LLTM_JIT_NAMES_##eights "}, %" #a_name ", %" #b_name ", 1, 1, 1, 0, 0;"      \
                 : LLTM_JIT_SUMS_##eights                                                          \
                 : "l"(a), "l"(b));                                                                \
  }
#define LLTM_JIT_WGMMA_HALF(eights, columns, a, b, ...)                                            \
  LLTM_JIT_WGMMA("f16", eights, columns, a, b)
#define LLTM_JIT_WGMMA_BFLOAT16(eights, columns, a, b, ...)                                        \
  LLTM_JIT_WGMMA("bf16", eights, columns, a, b)
#define LLTM_JIT_WGMMA_OF_REGISTERS(eights, columns, a_0, a_1, a_2, a_3, b_name)                   \
  if constexpr (kN == columns) {                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.f16.f16"                    \
                 " {" LLTM_JIT_NAMES_##eights "}, {%" #a_0 ", %" #a_1 ", %" #a_2 ", %" #a_3 "}, %" \
                 #b_name ", 1, 1, 1, 0;"                                                           \
                 : LLTM_JIT_SUMS_##eights                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
// clang-format on

// Starts a product with k = 16 and does not wait for it. Element e of lane l of warp w is the sum
// at row 16 w + l / 4 + e / 2 % 2 * 8, column e / 4 * 8 + l % 4 * 2 + e % 2.
template <typename scalar_t, int kN>
LLTM_JIT_DEVICE void wgmma(float (&sums)[kN / 2], uint64_t a, uint64_t b) {
  static_assert(kN % 8 == 0 && kN >= 16 && kN <= 144);
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_FOR_COLUMNS(LLTM_JIT_WGMMA_HALF)
  } else {
    LLTM_JIT_FOR_COLUMNS(LLTM_JIT_WGMMA_BFLOAT16)
  }
}

// The same with halves A in registers, in mma.sync's layout for the 16 rows of each warp. The registers
// must not change before wait_for_products() has waited for the product.
template <int kN>
LLTM_JIT_DEVICE void wgmma_of_registers(float (&sums)[kN / 2], const uint32_t (&a)[4], uint64_t b) {
  static_assert(kN % 8 == 0 && kN >= 16 && kN <= 144);
  LLTM_JIT_FOR_COLUMNS(LLTM_JIT_WGMMA_OF_REGISTERS)
}

// Gives registers up to the block's other warpgroups, or takes theirs, until each thread has kCount.
template <int kCount>
LLTM_JIT_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
LLTM_JIT_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Call this before the first product whose sums or operands are in registers.
LLTM_JIT_DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

LLTM_JIT_DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Starts the product of 64 rows of A and kN rows of B, over the rows' whole length.
template <typename scalar_t, int kN>
LLTM_JIT_DEVICE void begin_products(float (&sums)[kN / 2], const scalar_t* a, const scalar_t* b) {
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
LLTM_JIT_DEVICE void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace lltm_jit
