// Up to which size the cell on the CPU makes its products itself. No torch header.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/scalar.h"

namespace lltm_jit {

// Limits of batch_size * hidden_size * (hidden_size + input_size), for the cell's forward pass and for
// the products of its backward pass.
struct LltmLimits {
  int64_t cell, products;
};

// What the choice depends on.
struct CpuFeatures {
  bool wide_vectors;       // AVX2 or AVX-512: what the kernels are compiled for
  bool bfloat16_products;  // the library multiplies bfloat16 in hardware
  bool half_products;      // and half
};

// Of this processor. One with AMX has AVX-512's products of the same types, too.
inline CpuFeatures cpu_features() {
  CpuFeatures features{};
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  features.wide_vectors = true;
  features.bfloat16_products = __builtin_cpu_supports("avx512bf16");
#if defined(__clang__) || __GNUC__ >= 12  // older ones do not know the name
  features.half_products = __builtin_cpu_supports("avx512fp16");
#endif
#endif
  return features;
}

// Note [Own products or the library's on a CPU]
// With AVX2 or AVX-512 nothing is concatenated or transposed, and the pointwise part follows while the
// sums are in the cache; so ours are taken up to the size where the library's product is the quicker one.
// Where it multiplies a 16-bit type in hardware, ours win only as long as a call is bound by overhead, or
// by reading the weights for one row.
// tests/ops/rnn/time_lltm_roads.py times both roads at any size. Measured were B, I, H of 16, 32, 128;
// 1, 128, 128; 64, 256, 512; 1, 16 and 128, 1024, 1024 and 20000, 64, 64 on an Intel Xeon with AMX (2 and
// 16 threads) and an AMD EPYC with AVX-512 and avx512bf16 (1 thread). What decides, as ours over the
// library's, on the Intel one with 2 threads if nothing else is said:
//   float     backward 128, 1024, 1024: 1.54; 16 rows 1.02 (AMD 0.64); 20000, 64, 64: 1.14, and with 16
//             threads 0.59
//   double    forward 128, 1024, 1024: 1.25; 20000, 64, 64: 0.89; backward 16, 1024, 1024: 1.16;
//             64, 256, 512: 1.03
//   half      forward 64, 256, 512: 1.35; one row of 1024 0.55, and backward 0.65
//   bfloat16  forward 16, 1024, 1024: 1.79; one row 0.47 (AMD: backward 1.07)
// `weights` is hidden_size * (hidden_size + input_size).
inline LltmLimits lltm_cpu_limits(ElementType type, int64_t weights, const CpuFeatures& features) {
  constexpr int64_t kEverySize = std::numeric_limits<int64_t>::max();
  constexpr int64_t kSmall = 16 * 128 * 256, kOneLargeRow = 1 * 1024 * 2048;
  constexpr int64_t kMedium = 64 * 512 * 768, kSixteenLargeRows = 16 * 1024 * 2048;
  constexpr int64_t kManyShortRows = 20000 * 64 * 128, kFewWeights = 64 * 128;
  if (!features.wide_vectors) return {kSmall, kSmall};
  switch (type) {
    case ElementType::Half:
      if (features.half_products) return {kOneLargeRow, kOneLargeRow};
      return {kEverySize, kEverySize};
    case ElementType::BFloat16:
      if (features.bfloat16_products) return {kOneLargeRow, kSmall};
      return {kEverySize, kEverySize};
    case ElementType::Double:
      return {kManyShortRows, kMedium};
    default:
      return {kEverySize, weights <= kFewWeights ? kEverySize : kSixteenLargeRows};
  }
}

}  // namespace lltm_jit
