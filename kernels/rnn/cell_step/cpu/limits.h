// The sizes up to which our kernels compute the cell's products on the CPU, and from which they
// divide them. No torch header.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/scalar.h"
#include "core/products/processor.h"

namespace lltm_jit {

// Limits of batch_size * hidden_size * (hidden_size + input_size), for the cell's forward pass and
// for the backward pass's products.
struct LltmLimits {
  int64_t cell, products;
};

// Bounds in gemm.cpp.
struct LltmCpuBounds {
  // dot_tile multiplies fewer rows than this: so few rows do not pay for transposing the weights,
  // and each row's bits do not depend on the number of other rows.
  static constexpr int64_t kFewestRowsForPanels = 256;
  // Rows of a task, with panels and with dot products.
  static constexpr int64_t kFewestTaskRows = 32, kTaskRows = 256, kDotTaskRows = 64;
  // Columns of [h, x] per dot_tile: its rows then stay in the first-level cache.
  static constexpr int64_t kDotDepth = 1024;
  // Note [Deep products]: rows of the batch per split, and the largest gradient that is split.
  static constexpr int64_t kSplitDepth = 2048, kLargestSplit = 1 << 18;
};

// The properties that the choice depends on.
struct CpuFeatures {
  bool wide_vectors;       // AVX2 or AVX-512, which the kernels are compiled for
  bool bfloat16_products;  // the library multiplies bfloat16 in hardware
  bool half_products;      // the library multiplies half in hardware
  bool many_threads;       // eight or more
};

// Describes this processor.
inline CpuFeatures cpu_features(int threads) {
  constexpr int kMany = 8;
  CpuFeatures features{};
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  features.wide_vectors = true;
#endif
  features.bfloat16_products = multiplies_in_hardware(ElementType::BFloat16);
  features.half_products = multiplies_in_hardware(ElementType::Half);
  features.many_threads = threads >= kMany;
  return features;
}

// Note [Own products or the library's on a CPU]
// With AVX2 or AVX-512 our kernels concatenate and transpose nothing, and the pointwise part
// follows while the sums are in the cache. So they run up to the size at which the library's
// product is faster. Many threads share our tasks better than the library's. If the library
// multiplies a 16-bit type in hardware and there are few threads, ours win only while overhead
// bounds a call, or reading the weights for a single row.
// tools/time_lltm_kernels.py times both. The times of ours divided by the library's, on an Intel
// Xeon with AMX, forward with 2 and with 16 threads, then backward:
//   B, I, H          half                  bfloat16              float                 double
//   1, 1024, 1024    0.48 0.43  0.95 0.62  0.54 0.29  0.78 0.45  0.97 0.96  1.20 0.99  0.98 0.68  0.96 1.02
//   64, 256, 512     1.24 0.87  1.02 0.67  3.07 1.18  2.24 0.94  0.87 0.65  1.02 0.78  1.03 0.59  1.16 0.81
//   16, 1024, 1024   0.93 0.61  1.21 0.85  1.79 0.94  1.09 0.89  0.57 0.27  1.13 0.90  0.95 0.49  1.09 0.99
//   20000, 64, 64    0.95 0.96  1.26 0.92  1.32 1.29  2.35 1.51  1.02 0.64  1.17 1.01  0.56 0.27  1.30 1.15
//   128, 1024, 1024  1.61 1.04  1.17 0.98  5.56 2.56  3.68 2.23  1.14 0.78  1.66 0.97  1.36 1.02  1.40 1.04
// On an AMD EPYC the library was slower in float, so few threads use ours backward up to 16 rows.
// `weights` is hidden_size * (hidden_size + input_size).
inline LltmLimits lltm_cpu_limits(ElementType type, int64_t weights, const CpuFeatures& features) {
  constexpr int64_t kEverySize = std::numeric_limits<int64_t>::max();
  constexpr int64_t kSmall = 16 * 128 * 256, kOneLargeRow = 1 * 1024 * 2048;
  constexpr int64_t kMedium = 64 * 512 * 768, kSixteenLargeRows = 16 * 1024 * 2048;
  constexpr int64_t kManyShortRows = 20000 * 64 * 128, kFewWeights = 64 * 128;
  if (!features.wide_vectors) return {kSmall, kSmall};
  const bool many = features.many_threads;
  switch (type) {
    case ElementType::Half:
      if (!features.half_products) return {kEverySize, kEverySize};
      return many ? LltmLimits{kManyShortRows, kEverySize} : LltmLimits{kOneLargeRow, kOneLargeRow};
    case ElementType::BFloat16:
      if (!features.bfloat16_products) return {kEverySize, kEverySize};
      return {kOneLargeRow, many ? kSixteenLargeRows : kOneLargeRow};
    case ElementType::Double:
      return many ? LltmLimits{kEverySize, kSixteenLargeRows} : LltmLimits{kManyShortRows, kMedium};
    default:
      if (many) return {kEverySize, kEverySize};
      return {kManyShortRows, weights <= kFewWeights ? kEverySize : kSixteenLargeRows};
  }
}

}  // namespace lltm_jit
