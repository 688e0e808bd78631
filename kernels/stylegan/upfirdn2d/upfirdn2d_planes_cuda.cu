// Strips of planes: of tensors whose columns lie side by side.
#include "stylegan/upfirdn2d/upfirdn2d_strip_launch.cuh"

namespace lltm_jit {
namespace {

template <typename scalar_t, int kTaps, int kDown>
struct PlaneShape {
  static constexpr int kVec = 1;
  static constexpr int kWide = kTaps <= 4 && sizeof(scalar_t) == 2 && kDown == 1 ? 8 : 4;
};

}  // namespace

cudaError_t launch_strips_of_planes(const Upfirdn2dArgs& args, cudaStream_t stream) {
  return launch_strips_by_type<PlaneShape>(args, stream);
}

}  // namespace lltm_jit
