// The types that this processor multiplies in hardware. No torch header.
#pragma once

#include "core/math/scalar.h"

namespace lltm_jit {

// A library is many times slower with types that the processor must convert first. A processor with AMX
// also has AVX-512's products of the same types. On processors without AVX2 the library knows better.
inline bool multiplies_in_hardware([[maybe_unused]] ElementType type) {
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  if (type == ElementType::BFloat16) return __builtin_cpu_supports("avx512bf16");
  if (type == ElementType::Half) {
#if __clang_major__ >= 18 || __GNUC__ >= 12  // older compilers do not know the name
    return __builtin_cpu_supports("avx512fp16");
#else
    return false;
#endif
  }
#endif
  return true;
}

}  // namespace lltm_jit
