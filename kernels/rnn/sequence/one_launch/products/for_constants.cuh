// Loops whose counter is a constant.
#pragma once

#include <type_traits>

namespace lltm_jit {

// Calls function(i) for constants i. `#pragma unroll` is a wish that large loops are not granted, and their
// arrays would lie in memory.
template <int kCount, int kFirst = 0, typename Function>
__device__ __forceinline__ void for_constants(const Function& function) {
  if constexpr (kFirst < kCount) {
    function(std::integral_constant<int, kFirst>());
    for_constants<kCount, kFirst + 1>(function);
  }
}

}  // namespace lltm_jit
