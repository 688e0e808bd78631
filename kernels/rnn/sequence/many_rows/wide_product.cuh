// Products of 64 rows and any multiple of eight columns, with both operands in shared memory.
#pragma once

#include "core/products/wgmma.cuh"

namespace lltm_jit {

// clang-format off
#define LLTM_JIT_S1(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define LLTM_JIT_S2 LLTM_JIT_S1(0), LLTM_JIT_S1(4)
#define LLTM_JIT_S3 LLTM_JIT_S2, LLTM_JIT_S1(8)
#define LLTM_JIT_S4 LLTM_JIT_S3, LLTM_JIT_S1(12)
#define LLTM_JIT_S5 LLTM_JIT_S4, LLTM_JIT_S1(16)
#define LLTM_JIT_S6 LLTM_JIT_S5, LLTM_JIT_S1(20)
#define LLTM_JIT_S7 LLTM_JIT_S6, LLTM_JIT_S1(24)
#define LLTM_JIT_S8 LLTM_JIT_S7, LLTM_JIT_S1(28)
#define LLTM_JIT_S9 LLTM_JIT_S8, LLTM_JIT_S1(32)
#define LLTM_JIT_S10 LLTM_JIT_S9, LLTM_JIT_S1(36)
#define LLTM_JIT_S11 LLTM_JIT_S10, LLTM_JIT_S1(40)
#define LLTM_JIT_S12 LLTM_JIT_S11, LLTM_JIT_S1(44)
#define LLTM_JIT_S13 LLTM_JIT_S12, LLTM_JIT_S1(48)
#define LLTM_JIT_S14 LLTM_JIT_S13, LLTM_JIT_S1(52)
#define LLTM_JIT_S15 LLTM_JIT_S14, LLTM_JIT_S1(56)
#define LLTM_JIT_S16 LLTM_JIT_S15, LLTM_JIT_S1(60)
#define LLTM_JIT_S17 LLTM_JIT_S16, LLTM_JIT_S1(64)
#define LLTM_JIT_S18 LLTM_JIT_S17, LLTM_JIT_S1(68)
#define LLTM_JIT_N2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LLTM_JIT_N3 LLTM_JIT_N2 ", %8, %9, %10, %11"
#define LLTM_JIT_N4 LLTM_JIT_N3 ", %12, %13, %14, %15"
#define LLTM_JIT_N5 LLTM_JIT_N4 ", %16, %17, %18, %19"
#define LLTM_JIT_N6 LLTM_JIT_N5 ", %20, %21, %22, %23"
#define LLTM_JIT_N7 LLTM_JIT_N6 ", %24, %25, %26, %27"
#define LLTM_JIT_N8 LLTM_JIT_N7 ", %28, %29, %30, %31"
#define LLTM_JIT_N9 LLTM_JIT_N8 ", %32, %33, %34, %35"
#define LLTM_JIT_N10 LLTM_JIT_N9 ", %36, %37, %38, %39"
#define LLTM_JIT_N11 LLTM_JIT_N10 ", %40, %41, %42, %43"
#define LLTM_JIT_N12 LLTM_JIT_N11 ", %44, %45, %46, %47"
#define LLTM_JIT_N13 LLTM_JIT_N12 ", %48, %49, %50, %51"
#define LLTM_JIT_N14 LLTM_JIT_N13 ", %52, %53, %54, %55"
#define LLTM_JIT_N15 LLTM_JIT_N14 ", %56, %57, %58, %59"
#define LLTM_JIT_N16 LLTM_JIT_N15 ", %60, %61, %62, %63"
#define LLTM_JIT_N17 LLTM_JIT_N16 ", %64, %65, %66, %67"
#define LLTM_JIT_N18 LLTM_JIT_N17 ", %68, %69, %70, %71"
#define LLTM_JIT_WIDE(type, eights, n, a_name, b_name)                                              \
  if constexpr (kN == n) {                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                   \
                 " {" LLTM_JIT_N##eights "}, %" #a_name ", %" #b_name ", 1, 1, 1, 0, 0;"           \
                 : LLTM_JIT_S##eights                                                              \
                 : "l"(a), "l"(b));                                                                \
  }
#define LLTM_JIT_WIDES(type)                                                                       \
  LLTM_JIT_WIDE(type, 2, 16, 8, 9) LLTM_JIT_WIDE(type, 3, 24, 12, 13)                              \
  LLTM_JIT_WIDE(type, 4, 32, 16, 17) LLTM_JIT_WIDE(type, 5, 40, 20, 21)                            \
  LLTM_JIT_WIDE(type, 6, 48, 24, 25) LLTM_JIT_WIDE(type, 7, 56, 28, 29)                            \
  LLTM_JIT_WIDE(type, 8, 64, 32, 33) LLTM_JIT_WIDE(type, 9, 72, 36, 37)                            \
  LLTM_JIT_WIDE(type, 10, 80, 40, 41) LLTM_JIT_WIDE(type, 11, 88, 44, 45)                          \
  LLTM_JIT_WIDE(type, 12, 96, 48, 49) LLTM_JIT_WIDE(type, 13, 104, 52, 53)                         \
  LLTM_JIT_WIDE(type, 14, 112, 56, 57) LLTM_JIT_WIDE(type, 15, 120, 60, 61)                        \
  LLTM_JIT_WIDE(type, 16, 128, 64, 65) LLTM_JIT_WIDE(type, 17, 136, 68, 69)                        \
  LLTM_JIT_WIDE(type, 18, 144, 72, 73)
// clang-format on

template <typename scalar_t, int kN>
LLTM_JIT_DEVICE void multiply_wide(float (&sums)[kN / 2], uint64_t a, uint64_t b) {
  static_assert(kN % 8 == 0 && kN >= 16 && kN <= 144);
  if constexpr (std::is_same_v<scalar_t, Half>) {
    LLTM_JIT_WIDES("f16")
  } else {
    LLTM_JIT_WIDES("bf16")
  }
}

// clang-format off
#define LLTM_JIT_WIDE_ROWS(eights, n, a_0, a_1, a_2, a_3, b_name)                                   \
  if constexpr (kN == n) {                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" LLTM_JIT_N##eights       \
                 "}, {%" #a_0 ", %" #a_1 ", %" #a_2 ", %" #a_3 "}, %" #b_name ", 1, 1, 1, 0;"      \
                 : LLTM_JIT_S##eights                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
// clang-format on

// The same for halves, with the left operand in registers: see wgmma_of_registers().
template <int kN>
LLTM_JIT_DEVICE void multiply_wide_of_registers(float (&sums)[kN / 2], const uint32_t (&a)[4],
                                                uint64_t b) {
  static_assert(kN % 8 == 0 && kN >= 16 && kN <= 128);
  // clang-format off
  LLTM_JIT_WIDE_ROWS(2, 16, 8, 9, 10, 11, 12)
  LLTM_JIT_WIDE_ROWS(3, 24, 12, 13, 14, 15, 16)
  LLTM_JIT_WIDE_ROWS(4, 32, 16, 17, 18, 19, 20)
  LLTM_JIT_WIDE_ROWS(5, 40, 20, 21, 22, 23, 24)
  LLTM_JIT_WIDE_ROWS(6, 48, 24, 25, 26, 27, 28)
  LLTM_JIT_WIDE_ROWS(7, 56, 28, 29, 30, 31, 32)
  LLTM_JIT_WIDE_ROWS(8, 64, 32, 33, 34, 35, 36)
  LLTM_JIT_WIDE_ROWS(9, 72, 36, 37, 38, 39, 40)
  LLTM_JIT_WIDE_ROWS(10, 80, 40, 41, 42, 43, 44)
  LLTM_JIT_WIDE_ROWS(11, 88, 44, 45, 46, 47, 48)
  LLTM_JIT_WIDE_ROWS(12, 96, 48, 49, 50, 51, 52)
  LLTM_JIT_WIDE_ROWS(13, 104, 52, 53, 54, 55, 56)
  LLTM_JIT_WIDE_ROWS(14, 112, 56, 57, 58, 59, 60)
  LLTM_JIT_WIDE_ROWS(15, 120, 60, 61, 62, 63, 64)
  LLTM_JIT_WIDE_ROWS(16, 128, 64, 65, 66, 67, 68)
  // clang-format on
}

}  // namespace lltm_jit
