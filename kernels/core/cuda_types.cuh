// CUDA side of the element types: half and bfloat16 compute in float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "core/scalar.h"

namespace lltm_jit {

template <>
struct OpMath<__half> {
  using type = float;
};
template <>
struct OpMath<__nv_bfloat16> {
  using type = float;
};

template <typename scalar_t>
__device__ __forceinline__ opmath_t<scalar_t> to_opmath(scalar_t value) {
  return value;
}
__device__ __forceinline__ float to_opmath(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_opmath(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename scalar_t>
__device__ __forceinline__ scalar_t from_opmath(opmath_t<scalar_t> value) {
  if constexpr (std::is_same_v<scalar_t, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<scalar_t, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// Calls `function(scalar_t{})` with the floating-point type that `type` names.
template <typename Function>
cudaError_t dispatch_floating(ElementType type, Function&& function) {
  switch (type) {
    case ElementType::Half:
      return function(__half{});
    case ElementType::BFloat16:
      return function(__nv_bfloat16{});
    case ElementType::Float:
      return function(float{});
    case ElementType::Double:
      return function(double{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace lltm_jit
