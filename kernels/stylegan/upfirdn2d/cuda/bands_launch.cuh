// The host side of the band kernels: the division into strips, and the choice of a kernel.
#pragma once

#include "stylegan/upfirdn2d/cuda/bands.cuh"
#include "stylegan/upfirdn2d/cuda/pixel_bands.cuh"
#include "stylegan/upfirdn2d/cuda/strip_launch.cuh"

namespace lltm_jit {

// Output rows of a strip, chosen so that the whole chip has work: each strip reads and filters
// about kTaps rows more than it writes.
template <typename S>
int rows_of_bands(int64_t height, int64_t warps_across) {
  constexpr int64_t kWantedWarps = 132 * 12;
  constexpr int kMostRows = 64, kLeastRows = 4;
  int rows = kMostRows;
  while (rows > kLeastRows &&
         (rows / 2 >= height || warps_across * ceil_div(height, int64_t(rows)) < kWantedWarps)) {
    rows /= 2;
  }
  return rows;
}

// Launches nothing and returns cudaErrorInvalidConfiguration if the kernel does not fit.
template <typename S>
cudaError_t launch_bands(const Upfirdn2dArgs& call, cudaStream_t stream) {
  using scalar_t = typename S::scalar_t;
  constexpr int kBytes = sizeof(scalar_t), kEach = 16 / kBytes;
  int architecture = 0;
  if (const auto error = code_architecture(band_kernel<S>, &architecture); error != cudaSuccess) {
    return error;
  }
  const int64_t planes = call.batch * call.channels;
  BandArgs args{};
  StripArgs& strip = args.strip;
  strip.call = call;
  strip.horizontal = strip_axis(call.horizontal);
  strip.vertical = strip_axis(call.vertical);
  strip.lead = strip.horizontal.start & (kEach - 1);
  if (architecture < 90 || planes >= int64_t(1) << 31 || call.horizontal.in % kEach != 0 ||
      !aligned(16, call.x) || call.horizontal.out % 2 != 0 || !aligned(4, call.y) ||
      strip.lead + 15 * S::kDown + S::kTaps > S::kWindow) {
    return cudaErrorInvalidConfiguration;
  }
  strip.planes = static_cast<int>(planes);
  strip.x_plane = call.vertical.in * call.horizontal.in;
  strip.y_plane = call.vertical.out * call.horizontal.out;
  const int64_t blocks = ceil_div(call.horizontal.out, int64_t(16));
  strip.tiles_x = static_cast<int>(ceil_div(blocks, int64_t(kBandBlocks)));
  args.blocks = static_cast<int>(ceil_div(blocks, int64_t(strip.tiles_x)) + 1) / 2 * 2;
  args.window_columns = (args.blocks - 1) * S::kStep + S::kWindow;
  args.whole_rows = strip.horizontal.in <= args.window_columns;
  args.warp_planes = args.whole_rows ? kBandBlocks / args.blocks : 1;
  strip.row_bytes = (args.whole_rows ? strip.horizontal.in : args.window_columns) * kBytes;
  strip.stage_bytes = args.warp_planes * S::kRows * strip.row_bytes;
  const int64_t across = ceil_div(planes, int64_t(args.warp_planes)) * strip.tiles_x;
  strip.rows = rows_of_bands<S>(call.vertical.out, across);
  strip.tiles_y = static_cast<int>(ceil_div(call.vertical.out, int64_t(strip.rows)));
  const int64_t jobs = across * strip.tiles_y;
  if (jobs >= int64_t(1) << 31) return cudaErrorInvalidConfiguration;
  strip.jobs = static_cast<int>(jobs);
  int shared = kBandWarps * S::kStages * strip.stage_bytes;
  constexpr int kStatic = sizeof(FilterTaps<S::kTaps>) +
                          sizeof(CopyBarrier) * kBandWarps * S::kStages + 16 + kBoxAlignment;
  if (!fit_shared_memory(kStatic, &shared)) return cudaErrorInvalidConfiguration;
  return launch(band_kernel<S>, static_cast<unsigned>(ceil_div(jobs, int64_t(kBandWarps))),
                kStripThreads, shared, stream, args);
}

// The same for channels last.
template <typename S>
cudaError_t launch_pixel_bands(const Upfirdn2dArgs& call, cudaStream_t stream) {
  using scalar_t = typename S::scalar_t;
  int architecture = 0;
  if (const auto error = code_architecture(pixel_band_kernel<S>, &architecture);
      error != cudaSuccess) {
    return error;
  }
  if (architecture < 90 || call.channels % 8 != 0 || !aligned(16, call.x, call.y)) {
    return cudaErrorInvalidConfiguration;
  }
  PixelBandArgs args{};
  StripArgs& strip = args.strip;
  strip.call = call;
  strip.horizontal = strip_axis(call.horizontal);
  strip.vertical = strip_axis(call.vertical);
  strip.channels = static_cast<int>(call.channels);
  strip.y_plane = call.vertical.out * call.horizontal.out * call.channels;
  args.groups = round_up_to_power(ceil_div(call.channels, int64_t(8)), S::kWarps);
  const int blocks = S::kWarps / args.groups;
  args.columns = blocks * 16 + S::kTaps - 1;
  args.swizzle = (args.groups - 1) * 16;
  strip.row_bytes = args.columns * args.groups * 16;
  strip.stage_bytes = ceil_div(S::kRows * strip.row_bytes, kOrderAlignment) * kOrderAlignment;
  const CUtensorMapSwizzle order = args.groups == 8   ? CU_TENSOR_MAP_SWIZZLE_128B
                                   : args.groups == 4 ? CU_TENSOR_MAP_SWIZZLE_64B
                                   : args.groups == 2 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                      : CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap map{};
  if (!encode_dense_map<scalar_t, 4>(
          &map, call.x, {call.channels, call.horizontal.in, call.vertical.in, call.batch},
          {args.groups * 8, args.columns, S::kRows, 1}, order)) {
    return cudaErrorInvalidConfiguration;
  }
  strip.tiles_c = static_cast<int>(ceil_div(call.channels, int64_t(args.groups * 8)));
  strip.tiles_x = static_cast<int>(ceil_div(call.horizontal.out, int64_t(blocks * 16)));
  const int64_t across = call.batch * strip.tiles_c * strip.tiles_x;
  strip.rows = rows_of_bands<S>(call.vertical.out, across * S::kWarps);
  strip.tiles_y = static_cast<int>(ceil_div(call.vertical.out, int64_t(strip.rows)));
  const int64_t jobs = across * strip.tiles_y;
  int shared = S::kStages * strip.stage_bytes + kOrderAlignment - kBoxAlignment;
  constexpr int kStatic =
      sizeof(FilterTaps<S::kTaps>) + sizeof(CopyBarrier) * S::kStages + kBoxAlignment;
  if (jobs >= int64_t(1) << 31 || !fit_shared_memory(kStatic, &shared)) {
    return cudaErrorInvalidConfiguration;
  }
  return launch(pixel_band_kernel<S>, static_cast<unsigned>(jobs), S::kThreads, shared, stream,
                args, map);
}

// Launches the kernel with the fewest taps that suffice.
template <typename scalar_t, int kDown>
cudaError_t launch_bands_by_taps(const Upfirdn2dArgs& call, cudaStream_t stream) {
  const int64_t taps = max(call.horizontal.taps, call.vertical.taps);
  if (taps <= 4) return launch_bands<Band<scalar_t, kDown, 4>>(call, stream);
  if (!call.separable || taps > 12) return cudaErrorInvalidConfiguration;
  if (taps <= 8) return launch_bands<Band<scalar_t, kDown, 8>>(call, stream);
  return launch_bands<Band<scalar_t, kDown, 12>>(call, stream);
}

template <typename scalar_t>
cudaError_t launch_bands_as(const Upfirdn2dArgs& call, cudaStream_t stream) {
  if (call.horizontal.up == 2) return cudaErrorInvalidConfiguration;
  if (call.channels_last) {
    const int64_t taps = max(call.horizontal.taps, call.vertical.taps);
    if (call.horizontal.down == 2 || !call.separable || taps <= 8 || taps > 12) {
      return cudaErrorInvalidConfiguration;
    }
    return launch_pixel_bands<PixelBand<scalar_t, 12>>(call, stream);
  }
  return call.horizontal.down == 2 ? launch_bands_by_taps<scalar_t, 2>(call, stream)
                                   : launch_bands_by_taps<scalar_t, 1>(call, stream);
}

}  // namespace lltm_jit
