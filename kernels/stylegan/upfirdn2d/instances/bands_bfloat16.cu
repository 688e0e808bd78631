#include "stylegan/upfirdn2d/cuda/bands_launch.cuh"

namespace lltm_jit {
template cudaError_t launch_bands_as<BFloat16>(const Upfirdn2dArgs&, cudaStream_t);
}  // namespace lltm_jit
