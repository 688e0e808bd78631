// Launch geometry and wide memory accesses for pointwise kernels.
#pragma once

#include <cstdint>

#include "core/types/cuda.cuh"

namespace lltm_jit {

// 256 threads keep every SM full at up to 255 registers a thread, and small problems spread out.
constexpr int kThreads = 256;

// The widest access of one thread: 16 bytes, one transaction of the load/store unit.
constexpr int kAccessBytes = 16;

// Blocks for one thread each of `work` items; kernels step by the whole grid, so the cap (eight
// blocks for every SM of the largest chips) only bounds how many blocks are scheduled.
inline unsigned blocks_for(int64_t work) {
  constexpr int64_t kMaxBlocks = 148 * 8;
  return static_cast<unsigned>(min(max(ceil_div(work, kThreads), int64_t(1)), kMaxBlocks));
}

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

// What `ask(device, value)` answers for the current device. It is asked once a thread and device.
template <typename Value, typename Ask>
static cudaError_t ask_once(const Ask& ask, Value* value) {
  constexpr int kDevices = 64;
  struct Answer {
    bool known;
    Value value;
  };
  static thread_local Answer answers[kDevices];
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device < kDevices && answers[device].known) {
    *value = answers[device].value;
    return cudaSuccess;
  }
  error = ask(device, value);
  if (error == cudaSuccess && device < kDevices) answers[device] = {true, *value};
  return error;
}

// What code of this source runs on the current device: the chip's own, or an older one's that the
// driver has translated. 90 for 9.0. Remembered for all kernels of one type together.
template <typename Kernel>
static cudaError_t code_architecture(Kernel* kernel, int* architecture) {
  const auto ask = [&](int, int* value) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    *value = attributes.ptxVersion;
    return error;
  };
  return ask_once(ask, architecture);
}

// Lets a kernel have as much dynamic shared memory as the device gives a block. Always the same limit, for
// threads that launch it with different sizes at the same time. Done once for the kernels that take turns.
template <typename Kernel>
static cudaError_t allow_all_shared_memory(Kernel* kernel) {
  constexpr unsigned kLast = 16;
  static thread_local struct {
    Kernel* kernel;
    int device;
  } last[kLast];
  static thread_local unsigned count = 0;
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  for (const auto& each : last) {
    if (each.kernel == kernel && each.device == device) return cudaSuccess;
  }
  cudaFuncAttributes attributes{};
  error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 most - static_cast<int>(attributes.sharedSizeBytes));
  }
  if (error == cudaSuccess) last[count++ % kLast] = {kernel, device};
  return error;
}

// How many clusters of so many blocks of a kernel run at once; 0 where the chip, or the part of it that this process
// may use, has no room for one. More than 8 blocks are no portable number, and must be allowed.
template <typename Kernel>
static int clusters_at_once(Kernel* kernel, int blocks, int threads, int shared_bytes) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  cudaError_t error = cudaSuccess;
  if (blocks > 8) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error == cudaSuccess) return clusters;
  cudaGetLastError();  // an answer, too
  return 0;
}

// Launches a kernel that calls wait_for_predecessor(), or waits without starting its successor, before it
// touches memory; its blocks are in clusters of kCluster. More shared memory than the 48 KB that need no
// asking is asked for.
template <int kCluster = 1, typename... Args>
cudaError_t launch(void (*kernel)(Args...), unsigned blocks, int threads, int shared_bytes,
                   cudaStream_t stream, const Args&... args) {
  int architecture = 0;
  cudaError_t error = code_architecture(kernel, &architecture);
  if (error == cudaSuccess && shared_bytes > 48 * 1024) {
    error = allow_all_shared_memory(kernel);
  }
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = architecture < 90 ? 0 : kCluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, args...);
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

// Whether every pointer may be accessed `bytes` at a time; null may.
template <typename... Pointers>
bool aligned(int bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

}  // namespace lltm_jit
