// Asynchronous copies from global to shared memory, which overlap with computation. On chips before
// 8.0, which lack them, the thread copies at once.
// A thread commits its copies in groups, which end in the order of the commits.
#pragma once

#include <cstdint>

namespace lltm_jit {

// Copies the first `valid` of kBytes bytes (4, 8 or 16), and fills the others with zeros.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t shared, const void* source, int valid) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {  // bypasses L1: no other thread reads this
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
                 "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(source),
                 "n"(kBytes), "r"(valid)
                 : "memory");
  }
#else
  // The shortest elements have two bytes, and most copies are whole.
  struct alignas(kBytes) {
    uint16_t parts[kBytes / 2];
  } copy{};
  if (valid == kBytes) {
    copy = *static_cast<const decltype(copy)*>(source);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) {
      if (2 * i < valid) copy.parts[i] = static_cast<const uint16_t*>(source)[i];
    }
  }
  *static_cast<decltype(copy)*>(__cvta_shared_to_generic(shared)) = copy;
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending groups of this thread are in flight.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace lltm_jit
