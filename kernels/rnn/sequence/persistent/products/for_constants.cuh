// Loops whose counter is a constant.
#pragma once

#include <type_traits>

namespace lltm_jit {

// What a function calls if there is nothing to do.
struct Nothing {
  __device__ void operator()() const {}
};

// Calls function(i) for constants i. The compiler ignores `#pragma unroll` on large loops, and then their arrays
// are in memory.
template <int kCount, int kFirst = 0, typename Function>
LLTM_JIT_DEVICE void for_constants(const Function& function) {
  if constexpr (kFirst < kCount) {
    function(std::integral_constant<int, kFirst>());
    for_constants<kCount, kFirst + 1>(function);
  }
}

}  // namespace lltm_jit
