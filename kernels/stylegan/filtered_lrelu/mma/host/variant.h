// The tensor-core kernel for a call, which is compiled when it is first needed (see core/python/variant.h), and its
// launch.
#pragma once

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/plan.h"

#ifdef LLTM_JIT_CUDA
namespace lltm_jit {

// The driver's handle of the kernel; null where nothing is there to compile it. Throws where it does not compile, and
// while a CUDA graph is captured if it is not loaded yet.
const void* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape);

// cudaErrorNotSupported: the call is not for this shape, or the chip is too old or too small for it.
cudaError_t launch_walks(const void* kernel, const MmaShape& shape, const FilteredLreluArgs& args,
                         cudaStream_t stream);

}  // namespace lltm_jit
#endif
