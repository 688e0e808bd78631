// Which kernel runs a call on the GPU.
#pragma once

#include "stylegan/upfirdn2d/upfirdn2d.h"

namespace lltm_jit {

#ifdef LLTM_JIT_CUDA
// The kernels of upfirdn2d_strip.cuh, for planes and for pixels: whether there is one for a call, and
// then its launch.
bool has_strip_kernel(const Upfirdn2dArgs& args);
cudaError_t launch_strips_of_planes(const Upfirdn2dArgs& args, cudaStream_t stream);
cudaError_t launch_strips_of_pixels(const Upfirdn2dArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
