// The host side of the band kernel: the division into strips, and the choice of an instance.
#include "stylegan/upfirdn2d/cuda/bands.cuh"
#include "stylegan/upfirdn2d/cuda/strip_launch.cuh"

namespace lltm_jit {
namespace {

// Launches nothing and returns cudaErrorInvalidConfiguration if the kernel does not fit.
template <typename S>
cudaError_t launch_bands(const Upfirdn2dArgs& call, cudaStream_t stream) {
  using scalar_t = typename S::scalar_t;
  constexpr int kBytes = sizeof(scalar_t), kEach = 16 / kBytes;
  int architecture = 0;
  LLTM_JIT_TRY(code_architecture(band_kernel<S>, &architecture));
  BandArgs args{};
  StripArgs& strip = args.strip;
  const bool fits = begin_args(call, &strip);
  strip.lead = strip.horizontal.start & (kEach - 1);
  if (!fits || architecture < 90 || call.horizontal.in % kEach != 0 || !aligned(16, call.x) ||
      call.horizontal.out % 2 != 0 || !aligned(4, call.y) ||
      strip.lead + 15 * S::kDown + S::kTaps > S::kWindow) {
    return cudaErrorInvalidConfiguration;
  }
  const int64_t blocks = ceil_div(call.horizontal.out, int64_t(16));
  strip.tiles_x = static_cast<int>(ceil_div(blocks, int64_t(kBandBlocks)));
  args.blocks = static_cast<int>(ceil_div(blocks, int64_t(strip.tiles_x)) + 1) / 2 * 2;
  args.window_columns = (args.blocks - 1) * S::kStep + S::kWindow;
  args.whole_rows = strip.horizontal.in <= args.window_columns;
  args.warp_planes = args.whole_rows ? kBandBlocks / args.blocks : 1;
  strip.row_bytes = (args.whole_rows ? strip.horizontal.in : args.window_columns) * kBytes;
  strip.stage_bytes = args.warp_planes * S::kRows * strip.row_bytes;
  const int64_t across = ceil_div(int64_t(strip.planes), int64_t(args.warp_planes)) * strip.tiles_x;
  // The whole chip should have work, but each strip reads and filters about kTaps rows more than it writes.
  constexpr int kMostRows = 64, kLeastRows = 4, kWantedWarps = 132 * 12;
  const int rows = fewest_rows(kMostRows, kLeastRows, call.vertical.out, across, kWantedWarps);
  if (!divide_rows(&strip, across, rows)) return cudaErrorInvalidConfiguration;
  int shared = kBandWarps * S::kStages * strip.stage_bytes;
  constexpr int kStatic = sizeof(FilterTaps<S::kTaps>) +
                          sizeof(CopyBarrier) * kBandWarps * S::kStages + 16 + kBoxAlignment;
  if (!fit_shared_memory(kStatic, &shared)) return cudaErrorInvalidConfiguration;
  return launch(band_kernel<S>,
                static_cast<unsigned>(ceil_div(int64_t(strip.jobs), int64_t(kBandWarps))),
                kStripThreads, shared, stream, args);
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
  if (call.horizontal.up == 2 || call.channels_last) return cudaErrorInvalidConfiguration;
  return call.horizontal.down == 2 ? launch_bands_by_taps<scalar_t, 2>(call, stream)
                                   : launch_bands_by_taps<scalar_t, 1>(call, stream);
}

}  // namespace

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
