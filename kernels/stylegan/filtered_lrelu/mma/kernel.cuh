// The kernel of filtered_lrelu on tensor cores.
#pragma once

#include "core/memory/barrier.cuh"
#include "stylegan/filtered_lrelu/mma/walk/exact.cuh"
#include "stylegan/filtered_lrelu/mma/walk/walk.cuh"

namespace lltm_jit {

// Shared memory: the part common to all warps, then each warp's own part, ring and stage.
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
LLTM_JIT_DEVICE void run_walks(const MmaCall& call) {
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
    // Both warps choose the upsampling scale, because the downsampling scale depends on it.
    using UpTaps = typename Bands<K>::UpTaps;
    using DownTaps = typename Bands<K>::DownTaps;
    const float up = UpTaps::read_tap(call.args.fu.taps, call.args.fu.width, call.args.fu.flip);
    const float down = DownTaps::read_tap(call.args.fd.taps, call.args.fd.width, call.args.fd.flip);
    const TapScale up_scale = UpTaps::template choose<scalar_t>(
        up, K::kUp, [&](float scale, float) { return call.clamp * scale * scale; });
    if (warp == 0) {
      common.up.template set<scalar_t>(up, up_scale, K::kUp);
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

}  // namespace lltm_jit
