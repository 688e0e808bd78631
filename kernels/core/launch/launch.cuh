// Launches of pointwise kernels, and of kernels that wait for the kernel before them.
#pragma once

#include "core/launch/api.h"
#include "core/launch/block.cuh"

namespace lltm_jit {

// Blocks for `work` items with one thread each. Kernels stride by the whole grid, so the cap (eight
// blocks for every SM of the largest chips) only bounds the number of scheduled blocks.
inline unsigned blocks_for(int64_t work) {
  constexpr int64_t kMaxBlocks = 148 * 8;
  return static_cast<unsigned>(min(max(ceil_div(work, kThreads), int64_t(1)), kMaxBlocks));
}

// The answer of ask(device, value) for the current device, asked once per thread and device.
template <typename Value, typename Ask>
static cudaError_t ask_once(const Ask& ask, Value* value) {
  constexpr int kDevices = 64;
  struct Answer {
    bool known;
    Value value;
  };
  static thread_local Answer answers[kDevices];
  int device = 0;
  LLTM_JIT_TRY(cudaGetDevice(&device));
  if (device < kDevices && answers[device].known) {
    *value = answers[device].value;
    return cudaSuccess;
  }
  LLTM_JIT_TRY(ask(device, value));
  if (device < kDevices) answers[device] = {true, *value};
  return cudaSuccess;
}

// The architecture of this source's code on the current device, 90 for 9.0: the chip's own, or an older
// one that the driver has translated. The answer is kept for all kernels of one type together.
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

// Lets a kernel use as much dynamic shared memory as the device gives a block. The limit is always the
// same, because threads may launch it with different sizes at once. The last few kernels are remembered.
template <typename Kernel>
static cudaError_t allow_all_shared_memory(Kernel* kernel) {
  constexpr unsigned kLast = 16;
  static thread_local struct {
    Kernel* kernel;
    int device;
  } last[kLast];
  static thread_local unsigned count = 0;
  int device = 0, most = 0;
  LLTM_JIT_TRY(cudaGetDevice(&device));
  for (const auto& each : last) {
    if (each.kernel == kernel && each.device == device) return cudaSuccess;
  }
  cudaFuncAttributes attributes{};
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  LLTM_JIT_TRY(cudaFuncGetAttributes(&attributes, kernel));
  LLTM_JIT_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    most - static_cast<int>(attributes.sharedSizeBytes)));
  last[count++ % kLast] = {kernel, device};
  return cudaSuccess;
}

// How many clusters of `blocks` blocks of a kernel run at once; 0 if the chip, or this process's part of
// it, has no room for one. Clusters of more than 8 blocks are not portable and must be allowed first.
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
  cudaGetLastError();  // clears the error: the answer is 0
  return 0;
}

// Launches a kernel that waits for its predecessor (or without starting its successor) before it
// touches memory. Its blocks are in clusters of kCluster. Above 48 KB the kernel is first allowed
// its shared memory.
template <int kCluster = 1, typename... Args>
cudaError_t launch(void (*kernel)(Args...), unsigned blocks, int threads, int shared_bytes,
                   cudaStream_t stream, const Args&... args) {
  int architecture = 0;
  LLTM_JIT_TRY(code_architecture(kernel, &architecture));
  if (shared_bytes > 48 * 1024) LLTM_JIT_TRY(allow_all_shared_memory(kernel));
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

// Whether every pointer may be accessed `bytes` at a time; null pointers may.
template <typename... Pointers>
bool aligned(int bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

}  // namespace lltm_jit
