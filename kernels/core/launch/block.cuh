// Parts that all kernels share: the number of threads in a block, the wait for the kernel before,
// and wide memory accesses. It has no host code, so that NVRTC can compile it.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// 256 threads fill every SM at up to 255 registers per thread, and small problems use many SMs.
constexpr int kThreads = 256;

// The widest access of one thread is 16 bytes, one transaction of the load/store unit.
constexpr int kAccessBytes = 16;

// Note [Launches that overlap]
// A cell is so short that starting its kernel takes as long as running it. From Hopper on, a kernel
// launched with the programmatic attribute may be set up while its predecessor on the stream still
// runs. It waits in wait_for_predecessor() for the predecessor's end and memory, so that call comes
// before any access to memory. Code for older chips has no such wait, and launches without overlap
// on every chip.
//
// A kernel that fills the SMs only waits, so that its successor is set up at its end. Otherwise the
// successor's blocks would gather on the SMs that become free first.
LLTM_JIT_DEVICE void wait_without_starting_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
LLTM_JIT_DEVICE void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  wait_without_starting_successor();
}

// Reads or writes kCount neighbouring elements, at most kAccessBytes at a time.
template <typename scalar_t, int kCount, int kBytes = sizeof(scalar_t) * kCount>
struct alignas(kBytes < kAccessBytes ? kBytes : kAccessBytes) Pack {
  scalar_t values[kCount];
};

template <int kCount, typename scalar_t>
LLTM_JIT_DEVICE Pack<scalar_t, kCount> load_raw(const scalar_t* source) {
  return *reinterpret_cast<const Pack<scalar_t, kCount>*>(source);
}

// The same if `inside`, else zeros; `source` must be readable either way. A load under a condition
// would become a branch, and several such loads in a row would wait for each other.
template <int kCount, typename scalar_t>
LLTM_JIT_DEVICE Pack<scalar_t, kCount> load_or_zero(const scalar_t* source, bool inside) {
  Pack<scalar_t, kCount> pack = load_raw<kCount>(source);
  LLTM_JIT_UNROLLED(k, kCount) pack.values[k] = inside ? pack.values[k] : scalar_t{};
  return pack;
}

template <int kCount, typename scalar_t>
LLTM_JIT_DEVICE void load_pack(const scalar_t* source, opmath_t<scalar_t> (&values)[kCount]) {
  const auto pack = load_raw<kCount>(source);
  LLTM_JIT_UNROLLED(k, kCount) values[k] = to_opmath(pack.values[k]);
}

template <int kCount, typename scalar_t>
LLTM_JIT_DEVICE void store_pack(scalar_t* target, const opmath_t<scalar_t> (&values)[kCount]) {
  Pack<scalar_t, kCount> pack;
  LLTM_JIT_UNROLLED(k, kCount) pack.values[k] = from_opmath<scalar_t>(values[k]);
  *reinterpret_cast<Pack<scalar_t, kCount>*>(target) = pack;
}

// The sum of a block's kThreads numbers, for its first thread. Call __syncthreads() before the next sum.
template <typename T>
LLTM_JIT_DEVICE T block_sum(T sum) {
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
