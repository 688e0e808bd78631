// `cudaStream_t` and `cudaError_t`, for launchers' declarations. A CPU build has no CUDA headers
// and declares no launcher.
#pragma once

#if defined(WITH_CUDA) || defined(__CUDACC__)
#define LLTM_JIT_CUDA 1
#include <cuda_runtime_api.h>
#endif
