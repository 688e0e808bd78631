// What the threads of a block share with every launch: its geometry, the wait for the kernel before, and wide
// memory accesses. No code for the host, so that NVRTC takes it, too.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// 256 threads keep every SM full at up to 255 registers a thread, and small problems spread out.
constexpr int kThreads = 256;

// The widest access of one thread: 16 bytes, one transaction of the load/store unit.
constexpr int kAccessBytes = 16;

// Note [Launches that overlap]
// A cell is so short that starting its kernel costs as much as running it. From Hopper on a kernel
// launched with the programmatic attribute may be set up while its predecessor on the stream still
// runs; it waits for the predecessor's end, and for its memory, in wait_for_predecessor(), which
// therefore comes before any access to memory. Code for older chips, which has no such wait, launches
// as ever, wherever it runs.
//
// A kernel that fills the SMs only waits, and its successor is set up at its end. Otherwise the successor's
// blocks would gather on the SMs that become free first.
__device__ __forceinline__ void wait_without_starting_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  wait_without_starting_successor();
}

// kCount neighbouring elements, read or written at most kAccessBytes at a time.
template <typename scalar_t, int kCount, int kBytes = sizeof(scalar_t) * kCount>
struct alignas(kBytes < kAccessBytes ? kBytes : kAccessBytes) Pack {
  scalar_t values[kCount];
};

template <int kCount, typename scalar_t>
__device__ __forceinline__ Pack<scalar_t, kCount> load_raw(const scalar_t* source) {
  return *reinterpret_cast<const Pack<scalar_t, kCount>*>(source);
}

// The same where `inside`, else zeros; `source` must be readable anyway. A load that depended on the
// condition would become a branch, and of several in a row each would wait for the one before.
template <int kCount, typename scalar_t>
__device__ __forceinline__ Pack<scalar_t, kCount> load_or_zero(const scalar_t* source,
                                                               bool inside) {
  Pack<scalar_t, kCount> pack = load_raw<kCount>(source);
#pragma unroll
  for (int k = 0; k < kCount; ++k) pack.values[k] = inside ? pack.values[k] : scalar_t{};
  return pack;
}

template <int kCount, typename scalar_t>
__device__ __forceinline__ void load_pack(const scalar_t* source,
                                          opmath_t<scalar_t> (&values)[kCount]) {
  const auto pack = load_raw<kCount>(source);
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = to_opmath(pack.values[k]);
}

template <int kCount, typename scalar_t>
__device__ __forceinline__ void store_pack(scalar_t* target,
                                           const opmath_t<scalar_t> (&values)[kCount]) {
  Pack<scalar_t, kCount> pack;
#pragma unroll
  for (int k = 0; k < kCount; ++k) pack.values[k] = from_opmath<scalar_t>(values[k]);
  *reinterpret_cast<Pack<scalar_t, kCount>*>(target) = pack;
}

// The sum of a block's kThreads numbers, for its first thread. __syncthreads() before the next one.
template <typename T>
__device__ __forceinline__ T block_sum(T sum) {
  __shared__ T warp_sums[kThreads / 32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  }
  return sum;
}

}  // namespace lltm_jit
