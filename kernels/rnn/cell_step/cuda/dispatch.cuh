// The element types of the LLTM's CUDA kernels.
#pragma once

#include "core/types/cuda.cuh"

namespace lltm_jit {

// Calls function(scalar_t{}, cell_t{}) with the types that the arguments name.
template <typename Function>
cudaError_t dispatch_lltm(ElementType type, ElementType cell_type, const Function& function) {
  return dispatch_floating(type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    if constexpr (sizeof(scalar_t) == 2) {
      if (cell_type == ElementType::Float) return function(scalar, float{});
    }
    return function(scalar, scalar);
  });
}

}  // namespace lltm_jit
