// The kernel of filtered_lrelu on tensor cores, and its launch.
#pragma once

#include <cmath>
#include <limits>

#include "core/memory/barrier.cuh"
#include "stylegan/filtered_lrelu/mma/exact_walk.cuh"
#include "stylegan/filtered_lrelu/mma/walk.cuh"

namespace lltm_jit {

// Shared memory: what all warps have in common, what each has of its own, and its ring and stage.
template <typename K>
struct SharedLayout {
  struct Taps {
    typename Bands<K>::UpTaps up;
    typename Bands<K>::DownTaps down;
    ScaleConstants scales;
    DownRows<K> down_rows;
  };
  static constexpr int kElement = sizeof(typename K::scalar);
  static constexpr int kPlaces = K::kShape.tap_bytes(kElement);
  static constexpr int kWarps = kPlaces + K::kWarps * MmaShape::kPlaceBytes;
  static constexpr int kOfWarp = RowRing<K>::kBytes + K::kStageRows * K::kStagePitch;
  static constexpr int kBytes = kWarps + K::kWarps * kOfWarp;
  static_assert(sizeof(Taps) <= kPlaces && sizeof(WalkState<K>) <= MmaShape::kPlaceBytes);
  static_assert(kBytes == K::kShape.shared_bytes(kElement));
};

template <typename K>
__global__ void __launch_bounds__(32 * K::kWarps, 1)
    walk_kernel(const __grid_constant__ MmaCall call) {
#if __CUDA_ARCH__ >= 800
  using Layout = SharedLayout<K>;
  using scalar_t = typename K::scalar;
  extern __shared__ __align__(16) char shared[];
  auto& common = *reinterpret_cast<typename Layout::Taps*>(shared);
  const uint32_t start = shared_address(shared);
  const int warp = threadIdx.x / 32;
  wait_for_predecessor();

  const uint32_t room = Layout::kWarps + warp * Layout::kOfWarp;
  RowRing<K> ring(call, start + room);
  if (warp < 2) {
    // Both warps choose the scale up, on which that down depends.
    using UpTaps = typename Bands<K>::UpTaps;
    using DownTaps = typename Bands<K>::DownTaps;
    const float up = UpTaps::read_tap(call.fu.taps, call.fu.width, call.fu.flip);
    const float down = DownTaps::read_tap(call.fd.taps, call.fd.width, call.fd.flip);
    const TapScale up_scale = UpTaps::template choose<scalar_t>(
        up, K::Up::kFactor, [&](float scale, float) { return call.clamp * scale * scale; });
    if (warp == 0) {
      common.up.template set<scalar_t>(up, up_scale, K::Up::kFactor);
    } else {
      const float clamp = call.clamp * up_scale.scale * up_scale.scale;
      const float rounded = round_to_half(mantissa(clamp));
      common.down.template set<scalar_t>(
          down,
          DownTaps::template choose<scalar_t>(down, 1,
                                              [&](float, float sum) { return rounded * sum; }),
          1);
    }
  }
  __syncthreads();
  common.down_rows.make(common.down, call.plan.rows.down_phase);
  if (threadIdx.x == 0) {
    common.scales.template set<scalar_t>(call, common.up.scale, common.up.gain, common.down.scale);
  }
  __syncthreads();
  auto& of_warp =
      *reinterpret_cast<WalkState<K>*>(shared + Layout::kPlaces + warp * MmaShape::kPlaceBytes);
  Walk<K> walk{call, common.up, common.scales, common.down_rows, of_warp, ring};
  walk.bands.make(common.up, common.down, call.plan.rows, call.plan.columns, call.up_sign);
  walk.run();
  wait_for_copies<0>();
  __syncwarp();
  for (int i = 0, next = first_walk<K>(); next < call.walks; ++i, next += walk_step<K>()) {
    const OutliersNote note = of_warp.notes[i];
    if (note.any()) repeat_exactly<K>(call, next, note.outliers(), shared + room);
    __syncwarp();
  }
#endif
}

// The call as the kernel sees it; false if it is not for this shape.
template <typename K>
bool make_call(const FilteredLreluArgs& args, MmaCall* call) {
  if (!plan_mma(args, K::kShape, &call->plan) || args.mode != K::kSigns ||
      args.up != K::Up::kFactor || args.down != K::Down::kFactor || args.fu.width > K::Up::kTaps ||
      args.fd.width > K::Down::kTaps) {
    return false;
  }
  call->args = args;
  call->x = args.x;
  call->bias = args.bias;
  call->y = args.y;
  call->signs = args.signs;
  call->plane_sums = args.plane_sums;
  call->fu = args.fu;
  call->fd = args.fd;
  call->x_batch = args.x_strides[0];
  call->x_channel = args.x_strides[1];
  call->x_row = args.x_strides[2];
  call->x_column = args.x_strides[3];
  call->channels = FastDivisor(static_cast<uint32_t>(args.channels));
  call->segments = FastDivisor(static_cast<uint32_t>(call->plan.segments));
  call->blocks = FastDivisor(static_cast<uint32_t>(call->plan.blocks));
  call->walks = static_cast<int>(args.batch * args.channels * call->plan.parts());
  call->in_h = args.in_h;
  call->in_w = args.in_w;
  call->out_h = args.out_h;
  call->out_w = args.out_w;
  call->map = SignMap<int>(args.sign_h, args.sign_w, args.sign_phase_y, args.sign_phase_x);
  call->map_shift = (call->plan.columns.sign_tile & 3) * 2;

  // Note [Slopes]
  const double factor = std::abs(args.slope) > 1 ? std::abs(args.slope) : 1;
  call->slope = static_cast<float>(args.slope / factor);
  call->pass = static_cast<float>(1 / factor);
  call->up_sign = args.gain < 0 ? -1.f : 1.f;
  call->gain = static_cast<float>(std::abs(args.gain) * factor);
  call->clamp = static_cast<float>(args.gain == 0 ? std::numeric_limits<double>::infinity()
                                                  : args.clamp / std::abs(args.gain * factor));

  call->load_bytes = args.x_strides[3] == 1 ? access_bytes(args, true) : 2;
  call->store_bytes = access_bytes(args, false);
  return true;
}

// cudaErrorNotSupported: the call is not for this shape, or the chip is too old or too small for
// it.
template <typename K>
cudaError_t launch_walks(const FilteredLreluArgs& args, cudaStream_t stream) {
  MmaCall call{};
  if (!make_call<K>(args, &call)) return cudaErrorNotSupported;
  struct Chip {
    int multiprocessors, shared_bytes;
  } chip{};
  const auto ask = [](int device, Chip* answer) {
    const cudaError_t error =
        cudaDeviceGetAttribute(&answer->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    return cudaDeviceGetAttribute(&answer->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                  device);
  };
  int architecture = 0;
  cudaError_t error = ask_once(ask, &chip);
  if (error == cudaSuccess) error = code_architecture(walk_kernel<K>, &architecture);
  if (error != cudaSuccess) return error;
  if (architecture < 80 || SharedLayout<K>::kBytes > chip.shared_bytes)
    return cudaErrorNotSupported;
  const int blocks = max(min(chip.multiprocessors, call.walks),
                         ceil_div(call.walks, K::kWarps * WalkState<K>::kMostWalks));
  return launch(walk_kernel<K>, blocks, 32 * K::kWarps, SharedLayout<K>::kBytes, stream, call);
}

}  // namespace lltm_jit
