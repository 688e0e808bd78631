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
// sums are in the cache; so ours are taken at every size, except where the library multiplies the 16-bit
// types in hardware. There ours win as long as a call is bound by overhead, and the forward pass of one
// row also while it is bound by reading the weights.
// Measured on an AMD EPYC with AVX-512 and avx512bf16, one thread, ours over the library's product with
// the pointwise part, at 64, 256, 512 (batch, input, hidden), at 128, 1024, 1024, and at one and at 16
// rows of 1024, 1024: float at most 1.03, double at most 1.06, both at 128 rows backward; bfloat16 0.5
// for one row forward and 1.07 backward, and 1.2 to 2.3 at the others. The limits for half where the
// processor has products of it (avx512fp16) are bfloat16's, not measured.
inline LltmLimits lltm_cpu_limits(ElementType type, const CpuFeatures& features) {
  constexpr int64_t kEverySize = std::numeric_limits<int64_t>::max();
  constexpr int64_t kSmall = 16 * 128 * 256, kOneLargeRow = 1 * 1024 * 2048;
  if (!features.wide_vectors) return {kSmall, kSmall};
  const bool hardware = type == ElementType::BFloat16
                            ? features.bfloat16_products
                            : type == ElementType::Half && features.half_products;
  return hardware ? LltmLimits{kOneLargeRow, kSmall} : LltmLimits{kEverySize, kEverySize};
}

}  // namespace lltm_jit
