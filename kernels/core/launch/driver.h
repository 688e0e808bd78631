// Launches kernels that Python has compiled for the GPU alone (core/python/variant.h), by their driver handles.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "core/launch/api.h"

namespace lltm_jit {

// The driver's functions for such kernels. The runtime has its own only from CUDA 12.8 on.
struct Driver {
  decltype(&cuKernelGetAttribute) get;
  decltype(&cuKernelSetAttribute) set;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) blocks_of_sm;
  decltype(&cuOccupancyMaxActiveClusters) clusters_at_once;
  decltype(&cuLaunchKernelEx) launch;
};

template <typename Function>
cudaError_t find(const char* name, Function** function) {
  const auto address = reinterpret_cast<void**>(function);
#if CUDART_VERSION >= 12050
  return cudaGetDriverEntryPointByVersion(name, address, 12000, cudaEnableDefault, nullptr);
#else
  return cudaGetDriverEntryPoint(name, address, cudaEnableDefault, nullptr);
#endif
}

inline cudaError_t find_driver(const Driver** driver) {
  static Driver found{};
  static const cudaError_t error = std::max({
      find("cuKernelGetAttribute", &found.get),
      find("cuKernelSetAttribute", &found.set),
      find("cuOccupancyMaxActiveBlocksPerMultiprocessor", &found.blocks_of_sm),
      find("cuOccupancyMaxActiveClusters", &found.clusters_at_once),
      find("cuLaunchKernelEx", &found.launch),
  });
  *driver = &found;
  return error;
}

// Errors that the driver and the runtime share have the same numbers.
inline cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }

// A kernel that may use all of a device's shared memory.
struct ReadyKernel {
  CUkernel kernel;
  int device, architecture;  // architecture: 90 for code for 9.0
  int blocks;                // of a grid, that run at once, one per SM; or its clusters

  // The driver's functions take a kernel's handle, too.
  CUfunction function() const { return reinterpret_cast<CUfunction>(kernel); }
};

struct Launch {
  int64_t blocks;
  int threads, shared_bytes;
  int cluster;  // blocks
  bool grid;    // all blocks run at once
  cudaStream_t stream;
};

// Launches overlap as in Note [Launches that overlap], except those of whole grids.
struct LaunchConfig {
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};

  LaunchConfig(const Launch& launch, int architecture) {
    config.gridDimX = static_cast<unsigned>(launch.blocks);
    config.blockDimX = static_cast<unsigned>(launch.threads);
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
    config.hStream = launch.stream;
    config.attrs = attributes;
    if (launch.grid) {
      attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attributes[0].value.cooperative = 1;
    } else {
      attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attributes[0].value.programmaticStreamSerializationAllowed = 1;
    }
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[1].value.clusterDim = {static_cast<unsigned>(launch.cluster), 1, 1};
    config.numAttrs = !launch.grid && architecture < 90 ? 0 : launch.cluster > 1 ? 2 : 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
};

// The launch for which a kernel is made ready.
struct Wanted {
  int threads, shared_bytes;
  int cluster;  // blocks
  bool grid;    // all run at once
};

// `wanted` may be null: then only the kernel's architecture is looked up.
inline cudaError_t make_ready(const Driver& driver, const Wanted* wanted, ReadyKernel* ready) {
  // Driver functions act on the current context's device, which this call sets.
  LLTM_JIT_TRY(cudaSetDevice(ready->device));
  const CUdevice device = ready->device;
  const auto get = [&](int* value, CUfunction_attribute attribute) {
    return error_of(driver.get(value, attribute, ready->kernel, device));
  };
  const auto set = [&](CUfunction_attribute attribute, int value) {
    return error_of(driver.set(attribute, value, ready->kernel, device));
  };
  LLTM_JIT_TRY(get(&ready->architecture, CU_FUNC_ATTRIBUTE_PTX_VERSION));
  if (!wanted) return cudaSuccess;
  int most = 0, fixed = 0, of_sm = 0;
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  LLTM_JIT_TRY(get(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  LLTM_JIT_TRY(set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - fixed));
  if (!wanted->grid) {
    if (wanted->cluster <= 8 || ready->architecture < 90) return cudaSuccess;
    // Not all chips allow clusters of 16 blocks.
    return set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  }
  if (wanted->cluster > 1) {
    int threads = 0;  // code without wgmma allows one thread per block
    LLTM_JIT_TRY(get(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    if (threads < wanted->threads) return cudaSuccess;
    const LaunchConfig config(
        {wanted->cluster, wanted->threads, wanted->shared_bytes, wanted->cluster, true, nullptr},
        ready->architecture);
    return error_of(driver.clusters_at_once(&ready->blocks, ready->function(), &config.config));
  }
  LLTM_JIT_TRY(error_of(
      driver.blocks_of_sm(&of_sm, ready->function(), wanted->threads, wanted->shared_bytes)));
  if (of_sm == 0) return cudaSuccess;
  return cudaDeviceGetAttribute(&ready->blocks, cudaDevAttrMultiProcessorCount, device);
}

// The same, but once per thread, device and kernel: the last few results are kept.
inline cudaError_t find_ready(const Driver& driver, const void* kernel, const Wanted* wanted,
                              ReadyKernel* ready) {
  constexpr unsigned kLast = 32;
  static thread_local ReadyKernel last[kLast];
  static thread_local unsigned count = 0;
  *ready = {static_cast<CUkernel>(const_cast<void*>(kernel))};
  LLTM_JIT_TRY(cudaGetDevice(&ready->device));
  for (const auto& each : last) {
    if (each.kernel != ready->kernel || each.device != ready->device) continue;
    *ready = each;
    return cudaSuccess;
  }
  LLTM_JIT_TRY(make_ready(driver, wanted, ready));
  last[count++ % kLast] = *ready;
  return cudaSuccess;
}

inline cudaError_t launch_ready(const Driver& driver, const ReadyKernel& ready,
                                const Launch& launch, void** arguments) {
  const LaunchConfig config(launch, ready.architecture);
  return error_of(driver.launch(&config.config, ready.function(), arguments, nullptr));
}

}  // namespace lltm_jit
