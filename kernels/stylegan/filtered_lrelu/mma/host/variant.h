// The tensor-core kernel for a call, which is compiled on first use (core/python/variant.h), and
// its launch.
#pragma once

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/plan.h"

#ifdef LLTM_JIT_CUDA
namespace lltm_jit {

// The driver's handle of the kernel; null if no compiler is found. Throws if the kernel does not
// compile, or if it would have to be loaded while a CUDA graph is captured.
const void* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape);

// cudaErrorNotSupported: the call does not fit this shape, or the chip is too old or too small for it.
cudaError_t launch_walks(const void* kernel, const MmaShape& shape, const FilteredLreluArgs& args,
                         cudaStream_t stream);

}  // namespace lltm_jit
#endif
