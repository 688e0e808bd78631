// Addresses in shared memory, and barriers there that count arriving threads and bytes (mbarriers,
// on chips of 9.0 and later).
#pragma once

#include <cstdint>

namespace lltm_jit {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A barrier of the block's threads, whose warps may wait at different places in the code.
// __syncthreads() wants all of them at the same one.
__device__ __forceinline__ void sync_block(int threads) {
  asm volatile("bar.sync 0, %0;" ::"r"(threads) : "memory");
}

// In another block of the cluster, the place with this block's address.
__device__ __forceinline__ uint32_t address_in(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

// A barrier of the cluster's threads, after which they see each other's writes.
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// A barrier goes through phases. A phase ends when `threads` threads have arrived, and all bytes
// that they announced.
__device__ __forceinline__ void init_barrier(uint32_t barrier, int threads) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(threads));
}
// Makes barriers that this thread has initialised visible to the copy engine and the cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase wait for `bytes` more bytes.
__device__ __forceinline__ void arrive_and_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits for the end of the phase whose number is even (parity 0) or odd (1).
__device__ __forceinline__ void wait_for_barrier(uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// A barrier as a variable.
struct CopyBarrier {
  uint64_t state;

  __device__ __forceinline__ uint32_t address() const { return shared_address(this); }
  __device__ __forceinline__ void init(int threads) { init_barrier(address(), threads); }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    lltm_jit::arrive_and_expect(address(), bytes);
  }
  __device__ __forceinline__ void wait(int parity) { wait_for_barrier(address(), parity); }
};

}  // namespace lltm_jit
