// Words of 32 bits in shared and global memory, and numbers of 16 bits in them.
#pragma once

#include <cstring>

#include "core/types/cuda.cuh"
#include "core/types/half2.cuh"

namespace lltm_jit {

// -------------------------------------------------------------------------------- shared memory --

// Hides a number from the compiler. Otherwise each step would compute the number anew, while other warps wait, instead
// of keeping it in a register; or the compiler would keep results that are computed from it.
LLTM_JIT_DEVICE uint32_t keep(uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

template <int kWords>
struct Words {
  uint32_t value[kWords];
};

// Loads or stores words by an instruction; `kind` is the constraint of the address.
#define LLTM_JIT_LOAD_WORDS(instruction, w, kind, address)                                    \
  if constexpr (kWords == 4) {                                                                \
    asm volatile(instruction ".v4.b32 {%0, %1, %2, %3}, [%4];"                                \
                 : "=r"(w.value[0]), "=r"(w.value[1]), "=r"(w.value[2]), "=r"(w.value[3])     \
                 : kind(address)                                                              \
                 : "memory");                                                                 \
  } else if constexpr (kWords == 2) {                                                         \
    asm volatile(instruction ".v2.b32 {%0, %1}, [%2];"                                        \
                 : "=r"(w.value[0]), "=r"(w.value[1])                                         \
                 : kind(address)                                                              \
                 : "memory");                                                                 \
  } else {                                                                                    \
    asm volatile(instruction ".b32 %0, [%1];" : "=r"(w.value[0]) : kind(address) : "memory"); \
  }
#define LLTM_JIT_STORE_WORDS(instruction, w, kind, address)                                      \
  if constexpr (kWords == 4) {                                                                   \
    asm volatile(instruction ".v4.b32 [%0], {%1, %2, %3, %4};" ::kind(address), "r"(w.value[0]), \
                 "r"(w.value[1]), "r"(w.value[2]), "r"(w.value[3])                               \
                 : "memory");                                                                    \
  } else if constexpr (kWords == 2) {                                                            \
    asm volatile(instruction ".v2.b32 [%0], {%1, %2};" ::kind(address), "r"(w.value[0]),         \
                 "r"(w.value[1])                                                                 \
                 : "memory");                                                                    \
  } else {                                                                                       \
    asm volatile(instruction ".b32 [%0], %1;" ::kind(address), "r"(w.value[0]) : "memory");      \
  }

template <int kWords>
LLTM_JIT_DEVICE Words<kWords> load_shared(uint32_t address) {
  Words<kWords> w;
  LLTM_JIT_LOAD_WORDS("ld.shared", w, "r", address);
  return w;
}
template <int kWords>
LLTM_JIT_DEVICE void store_shared(uint32_t address, const Words<kWords>& w) {
  LLTM_JIT_STORE_WORDS("st.shared", w, "r", address);
}

LLTM_JIT_DEVICE void store_half(uint32_t address, uint16_t half) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(half) : "memory");
}

// What one instruction reads or writes.
template <int kWords>
using Access =
    std::conditional_t<kWords == 4, uint4, std::conditional_t<kWords == 2, uint2, uint32_t>>;

template <int kWords>
LLTM_JIT_DEVICE void store_words(void* target, const Words<kWords>& w) {
  static_assert(sizeof(Access<kWords>) == sizeof w);
  Access<kWords> access;
  memcpy(&access, &w, sizeof w);
  *static_cast<Access<kWords>*>(target) = access;
}

template <int kWords>
LLTM_JIT_DEVICE Words<kWords> load_words(const void* source) {
  const auto access = *static_cast<const Access<kWords>*>(source);
  Words<kWords> w;
  memcpy(&w, &access, sizeof w);
  return w;
}

// Loads the first `count` of neighbouring numbers, at any address, as kWords words; the other numbers are zero.
template <typename scalar_t, int kWords>
LLTM_JIT_DEVICE Words<kWords> load_first(const void* source, int count) {
  constexpr int kNumbers = kWords * 4 / int(sizeof(scalar_t));
  scalar_t numbers[kNumbers];
  LLTM_JIT_UNROLLED(i, kNumbers) {
    numbers[i] = i < count ? static_cast<const scalar_t*>(source)[i] : scalar_t{};
  }
  Words<kWords> w;
  memcpy(&w, numbers, sizeof w);
  return w;
}
template <typename scalar_t, int kWords>
LLTM_JIT_DEVICE void store_first(void* target, const Words<kWords>& w, int count) {
  constexpr int kNumbers = kWords * 4 / int(sizeof(scalar_t));
  scalar_t numbers[kNumbers];
  memcpy(numbers, &w, sizeof w);
  LLTM_JIT_UNROLLED(i, kNumbers) {
    if (i < count) static_cast<scalar_t*>(target)[i] = numbers[i];
  }
}

// Loads four neighbouring weights if they exist, else zeros.
template <int kWords>
LLTM_JIT_DEVICE Words<kWords> load_weights(const void* from, bool exist) {
  Words<kWords> w;
  if constexpr (kWords == 2) {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %3, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "@p ld.global.nc.v2.b32 {%0, %1}, [%2];}"
        : "=r"(w.value[0]), "=r"(w.value[1])
        : "l"(from), "r"(int(exist)));
  } else {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %5, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "mov.b32 %2, 0;\n"
        "mov.b32 %3, 0;\n"
        "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
        : "=r"(w.value[0]), "=r"(w.value[1]), "=r"(w.value[2]), "=r"(w.value[3])
        : "l"(from), "r"(int(exist)));
  }
  return w;
}
// Loads one weight, or zero.
LLTM_JIT_DEVICE uint32_t load_weight(const uint32_t* from, bool exist) {
  uint32_t weight;
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "mov.b32 %0, 0;\n"
      "@p ld.global.nc.b32 %0, [%1];}"
      : "=r"(weight)
      : "l"(from), "r"(int(exist)));
  return weight;
}

// ------------------------------------------------------------------------------ pairs of 16 bits --

template <typename scalar_t>
LLTM_JIT_DEVICE void unpack(uint32_t pair, float& low, float& high) {
  low = to_opmath(scalar_t{static_cast<uint16_t>(pair)});
  high = to_opmath(scalar_t{static_cast<uint16_t>(pair >> 16)});
}

}  // namespace lltm_jit
