// CUDA's types of the element types: half and bfloat16 compute in float.
#pragma once

#include <type_traits>

#include "core/math/scalar.h"

namespace lltm_jit {

// The 16-bit types as they lie in memory. Kernels only convert them. <cuda_fp16.h> and <cuda_bf16.h>,
// which have all operations, would add a third of a second to each source's compile time.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <>
struct OpMath<Half> {
  using type = float;
};
template <>
struct OpMath<BFloat16> {
  using type = float;
};

template <typename scalar_t>
LLTM_JIT_DEVICE scalar_t to_opmath(scalar_t value) {
  return value;
}
LLTM_JIT_DEVICE float to_opmath(Half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
LLTM_JIT_DEVICE float to_opmath(BFloat16 value) {
  return __uint_as_float(uint32_t(value.bits) << 16);
}

// Rounds to nearest, ties to even.
template <typename scalar_t>
LLTM_JIT_DEVICE scalar_t from_opmath(opmath_t<scalar_t> value) {
  if constexpr (std::is_same_v<scalar_t, Half>) {
    Half result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  } else if constexpr (std::is_same_v<scalar_t, BFloat16>) {
#if __CUDA_ARCH__ >= 800
    BFloat16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#else
    const uint32_t bits = __float_as_uint(value);
    if (isnan(value)) return {0x7fff};
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
  } else {
    return value;
  }
}

// Calls `function(scalar_t{})` with the floating-point type that `type` names.
template <typename Function>
cudaError_t dispatch_floating(ElementType type, Function&& function) {
  switch (type) {
    case ElementType::Half:
      return function(Half{});
    case ElementType::BFloat16:
      return function(BFloat16{});
    case ElementType::Float:
      return function(float{});
    case ElementType::Double:
      return function(double{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lltm_jit
