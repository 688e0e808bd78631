// Strips of pixels: of tensors whose channels lie side by side.
#include "stylegan/upfirdn2d/upfirdn2d_strip_launch.cuh"

namespace lltm_jit {
namespace {

template <typename scalar_t, int kTaps, int kDown>
struct PixelShape {
  static constexpr int kVec = kTaps <= 8 ? 4 : 2;
  static constexpr int kWide = 2;
};

}  // namespace

cudaError_t launch_strips_of_pixels(const Upfirdn2dArgs& args, cudaStream_t stream) {
  return launch_strips_by_type<PixelShape>(args, stream);
}

}  // namespace lltm_jit
