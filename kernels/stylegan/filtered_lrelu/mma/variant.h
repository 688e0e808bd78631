// The tensor-core kernel for a call, which is compiled when it is first needed: see core/python/variant.h.
#pragma once

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/plan.h"

#ifdef LLTM_JIT_CUDA
namespace lltm_jit {

using FlrVariant = cudaError_t(const FilteredLreluArgs&, cudaStream_t);

// Throws where it does not compile, and while a CUDA graph is captured if it is not loaded yet.
FlrVariant* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape);

}  // namespace lltm_jit
#endif
