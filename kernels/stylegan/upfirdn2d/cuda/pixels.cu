// The strips of pixels: images whose channels are last.
#include "stylegan/upfirdn2d/cuda/strip_launch.cuh"

namespace lltm_jit {
namespace {

// The channels and columns of a thread.
template <typename scalar_t, int kTaps, int kUp, int kDown>
struct PixelShape {
  static constexpr int kVec = kTaps <= 8 ? 4 : 2;
  static constexpr int kWide = kTaps == 12 ? 4 : 2;
};

}  // namespace

cudaError_t launch_pixels(const Upfirdn2dArgs& call, cudaStream_t stream) {
  return launch_strips_by_type<PixelShape>(call, stream);
}

}  // namespace lltm_jit
