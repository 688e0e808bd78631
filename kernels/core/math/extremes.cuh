// The smaller and the larger of two floats; NaN if one of them is.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

LLTM_JIT_DEVICE float smaller_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
#else
  return a < b || isnan(a) ? a : b;
#endif
}

LLTM_JIT_DEVICE float larger_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || isnan(a) ? a : b;
#endif
}

}  // namespace lltm_jit
