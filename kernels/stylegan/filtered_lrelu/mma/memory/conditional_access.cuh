// Predicated memory accesses without branches, because the compiler does not reorder code around a
// branch. They are for data that is used once.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

// An instruction that runs if the operand `condition` is not 0.
#define LLTM_JIT_IF(condition, instruction) \
  "{.reg .pred p;\nsetp.ne.b32 p, " condition ", 0;\n@p " instruction ";}"

LLTM_JIT_DEVICE void store_if(void* to, const uint4& piece, bool condition) {
  asm volatile(LLTM_JIT_IF("%5", "st.global.cs.v4.b32 [%0], {%1, %2, %3, %4}")::"l"(to),
               "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w), "r"(int(condition))
               : "memory");
}
LLTM_JIT_DEVICE void store_if(void* to, uint32_t piece, bool condition) {
  asm volatile(LLTM_JIT_IF("%2", "st.global.cs.b32 [%0], %1")::"l"(to), "r"(piece),
               "r"(int(condition))
               : "memory");
}
LLTM_JIT_DEVICE void store_if(void* to, uint16_t piece, bool condition) {
  asm volatile(LLTM_JIT_IF("%2", "st.global.cs.b16 [%0], %1")::"l"(to), "h"(piece),
               "r"(int(condition))
               : "memory");
}

// Loads a word, or gives 0 if the condition is false.
LLTM_JIT_DEVICE uint32_t load_if(const uint32_t* from, bool condition) {
  uint32_t value;
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "mov.b32 %0, 0;\n"
      "@p ld.global.cs.b32 %0, [%1];}"
      : "=r"(value)
      : "l"(from), "r"(int(condition)));
  return value;
}

// Prefetches into the second-level cache.
LLTM_JIT_DEVICE void prefetch_if(const void* from, bool condition) {
  asm volatile(LLTM_JIT_IF("%1", "prefetch.global.L2 [%0]")::"l"(from), "r"(int(condition)));
}

}  // namespace lltm_jit
