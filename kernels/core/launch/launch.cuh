// Launches of pointwise kernels, and of those that wait for the kernel before them.
#pragma once

#include "core/launch/block.cuh"

namespace lltm_jit {

// Blocks for one thread each of `work` items; kernels step by the whole grid, so the cap (eight
// blocks for every SM of the largest chips) only bounds how many blocks are scheduled.
inline unsigned blocks_for(int64_t work) {
  constexpr int64_t kMaxBlocks = 148 * 8;
  return static_cast<unsigned>(min(max(ceil_div(work, kThreads), int64_t(1)), kMaxBlocks));
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

// Whether every pointer may be accessed `bytes` at a time; null may.
template <typename... Pointers>
bool aligned(int bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

}  // namespace lltm_jit
