// scale_add: z = a * x + y, elementwise.
//
// The contract between the host code (scale_add.cpp) and the CUDA kernel (scale_add_cuda.cu). The
// kernel's file sees no header of torch's: nvcc needs about a second for it, and a minute with one.
#pragma once

#include <cstdint>

#ifdef WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace scale_add {

template <typename T>
struct Arguments {
  const T* x;  // numel elements, contiguous
  const T* y;  // numel elements, contiguous
  T* z;        // numel elements, contiguous; may be x or y
  T a;
  int64_t numel;  // positive
};

#ifdef WITH_CUDA
// Enqueues on `stream`. Defined for float and double.
template <typename T>
cudaError_t launch(const Arguments<T>& arguments, cudaStream_t stream);
#endif

}  // namespace scale_add
