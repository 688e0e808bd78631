// Bytes that lie together, brought to shared memory by the copy engine of chips of 9.0 and later: one thread
// asks, and everybody waits on a barrier that counts the bytes.
#pragma once

#include <cstdint>

#include "core/memory/barrier.cuh"

namespace lltm_jit {

// `bytes` that lie together, a multiple of 16 as both addresses are.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, int bytes,
                                          CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Makes what this thread has written to shared memory known to the copy engine.
__device__ __forceinline__ void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// `bytes` that lie together, to memory.
__device__ __forceinline__ void store_bulk(void* target, const void* source, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(target),
      "r"(shared_address(source)), "r"(bytes)
      : "memory");
}

// Waits for what this thread told the copy engine to store.
__device__ __forceinline__ void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace lltm_jit
