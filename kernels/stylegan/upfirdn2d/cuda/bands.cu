// Bands of the 16-bit types.
#include "stylegan/upfirdn2d/cuda/bands_launch.cuh"

namespace lltm_jit {

cudaError_t launch_bands(const Upfirdn2dArgs& call, cudaStream_t stream) {
  switch (call.type) {
    case ElementType::Half:
      return launch_bands_as<Half>(call, stream);
    case ElementType::BFloat16:
      return launch_bands_as<BFloat16>(call, stream);
    default:
      return cudaErrorInvalidConfiguration;
  }
}

}  // namespace lltm_jit
