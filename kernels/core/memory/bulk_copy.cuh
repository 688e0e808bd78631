// Contiguous bytes, which the copy engine (TMA) of chips of 9.0 and later loads into shared memory:
// one thread starts the copy, and all wait at a barrier that counts the bytes.
#pragma once

#include <cstdint>

#include "core/memory/barrier.cuh"

namespace lltm_jit {

// Loads `bytes` contiguous bytes. The number and both addresses are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, int bytes,
                                          CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine.
__device__ __forceinline__ void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Stores `bytes` contiguous bytes from shared memory to global memory.
__device__ __forceinline__ void store_bulk(void* target, const void* source, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(target),
      "r"(shared_address(source)), "r"(bytes)
      : "memory");
}

// Waits for the stores that this thread gave the copy engine.
__device__ __forceinline__ void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace lltm_jit
