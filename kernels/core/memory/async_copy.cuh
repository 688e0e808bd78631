// Copies from memory to shared memory that go on beside the computation (chips of 8.0 and later).
// A thread's copies are committed in groups, which end in that order.
#pragma once

#include <cstdint>

namespace lltm_jit {

// The first `valid` of kBytes bytes (4, 8 or 16), and zeros for the others.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t shared, const void* source, int valid) {
  if constexpr (kBytes == 16) {  // past the first level of cache, where nobody else will look
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
                 "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(source),
                 "n"(kBytes), "r"(valid)
                 : "memory");
  }
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace lltm_jit
