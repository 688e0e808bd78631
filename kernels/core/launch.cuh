// Launch geometry and wide memory accesses for pointwise kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda_types.cuh"

namespace lltm_jit {

// 256 threads keep every SM full at up to 255 registers a thread, and small problems spread out.
constexpr int kThreads = 256;

// The widest access of one thread: 16 bytes, one transaction of the load/store unit.
constexpr int kAccessBytes = 16;

// Blocks for one thread each of `work` items; kernels step by the whole grid, so the cap (eight
// blocks for every SM of the largest chips) only bounds how many blocks are scheduled.
inline unsigned blocks_for(int64_t work) {
  constexpr int64_t kMaxBlocks = 148 * 8;
  return static_cast<unsigned>(
      std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

// kCount neighbouring elements, read or written at most kAccessBytes at a time.
template <typename scalar_t, int kCount>
struct alignas(std::min<int>(sizeof(scalar_t) * kCount, kAccessBytes)) Pack {
  scalar_t values[kCount];
};

template <int kCount, typename scalar_t>
__device__ __forceinline__ void load_pack(const scalar_t* source,
                                          opmath_t<scalar_t> (&values)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<scalar_t, kCount>*>(source);
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

// Whether every pointer may be accessed `bytes` at a time; null may.
template <typename... Pointers>
bool aligned(int bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

}  // namespace lltm_jit
