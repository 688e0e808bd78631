// The strips of planes (NCHW).
#include "stylegan/upfirdn2d/cuda/strip_launch.cuh"

namespace lltm_jit {
namespace {

// The columns of a thread. More columns mean fewer loads and conversions for each, but fewer threads fit.
// kFew: with more columns, loads of floats would have strides of 32 bytes, of which two fall into each bank.
template <typename scalar_t, int kTaps, int kUp, int kDown>
struct PlaneShape {
  static constexpr int kVec = 1;
  static constexpr bool kMany = sizeof(scalar_t) == 2 || (kTaps == 12 && kUp == 1);
  static constexpr bool kFew = sizeof(scalar_t) == 4 && kTaps <= 4 && kDown == 2;
  static constexpr int kWide = kFew ? 2 : kDown == 1 && kTaps <= 12 && kMany ? 8 : 4;
};

}  // namespace

cudaError_t launch_planes(const Upfirdn2dArgs& call, cudaStream_t stream) {
  return launch_strips_by_type<PlaneShape>(call, stream);
}

}  // namespace lltm_jit
