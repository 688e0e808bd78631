// Defines `cudaStream_t` and `cudaError_t` for launchers' declarations. A CPU build has no CUDA
// headers and declares no launcher; nor does NVRTC, which compiles code for the GPU alone.
#pragma once

#if (defined(WITH_CUDA) || defined(__CUDACC__)) && !defined(__CUDACC_RTC__)
#define LLTM_JIT_CUDA 1
#include <cuda_runtime_api.h>

// Returns a call's error, if there is one, from a function that returns cudaError_t.
#define LLTM_JIT_TRY(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error

namespace lltm_jit {

// Whether a launch was refused because the code is for another chip, or the chip (or this process's
// part of it) lacks the resources: a different kernel may run. It clears the error in that case.
inline bool was_refused(cudaError_t error) {
  switch (error) {
    case cudaErrorNotSupported:
    case cudaErrorInvalidClusterSize:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
      cudaGetLastError();
      return true;
    default:
      return false;
  }
}

}  // namespace lltm_jit
#endif
