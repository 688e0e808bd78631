#include "stylegan/upfirdn2d/cuda/strip_launch.cuh"

namespace lltm_jit {
template cudaError_t launch_strips_as<Half, PixelShape>(const Upfirdn2dArgs&, cudaStream_t);
}  // namespace lltm_jit
