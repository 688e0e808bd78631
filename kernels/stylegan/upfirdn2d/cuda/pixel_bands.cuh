// Note [Bands] for channels last: filters without factors that have more taps than the strips can
// filter at memory speed. It needs code for chips of 9.0 or later.
#pragma once

#include "stylegan/upfirdn2d/cuda/bands.cuh"

namespace lltm_jit {

// A warp has a block of 16 pixels of each row, in 8 channels. A block of threads has several such
// blocks, next to each other in both directions, which share what the copy engine loads.
template <typename T, int kTaps_>
struct PixelBand {
  using scalar_t = T;
  static constexpr int kUp = 1, kDown = 1, kTaps = kTaps_;
  static constexpr bool kTwoDimensional = false, kPixels = true;
  static constexpr int kParts = std::is_same_v<T, Half> ? 2 : 3;
  static constexpr bool kSplit = false;
  static constexpr int kRows = 8, kStages = 2;
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kBlocks = 2;
  static constexpr int kSums = kTaps, kLead = kSums - 1;
  static constexpr int kProducts = 2, kWindow = 32;
};

// The copy engine swizzles chunks by address, so a stage must be aligned to this.
constexpr int kOrderAlignment = 1024;

struct PixelBandArgs {
  StripArgs strip;
  int groups;   // of 8 channels, per block of threads, a power of two
  int columns;  // of x in shared memory
  int swizzle;  // bits of an address to XOR with those three above. Note [Chunks in turn]
};

// A block's part of a call, and a lane's part of that: the results of two channels, in a column and
// in the eighth column from there.
template <typename S>
struct PixelBandJob {
  int group_channel, group_column, row, image;
  int source;  // of the lane in a row of shared memory
  int column, channel;
  bool writes[2];

  __device__ explicit PixelBandJob(const PixelBandArgs& args) {
    const StripArgs& strip = args.strip;
    unsigned job = blockIdx.x;
    group_channel = job % strip.tiles_c * args.groups * 8;
    job /= strip.tiles_c;
    group_column = job % strip.tiles_x * (S::kWarps / args.groups) * 16;
    job /= strip.tiles_x;
    row = job % strip.tiles_y * strip.rows;
    image = job / strip.tiles_y;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp % args.groups, block = warp / args.groups * 16;
    // Pixels beyond the window are multiplied by zeros.
    source = (block + min(lane, 15 + S::kTaps - 1)) * args.groups * 16 + group * 16;
    column = group_column + block + lane / 4;
    channel = group_channel + group * 8 + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      writes[h] = channel < strip.channels && column + 8 * h < strip.horizontal.out;
    }
  }
};

// Computes a lane's results again. Note [Taps that are not there]
template <typename S>
__device__ __noinline__ void write_pixels_directly(const PixelBandArgs& args) {
  using scalar_t = typename S::scalar_t;
  const StripArgs& strip = args.strip;
  const PixelBandJob<S> job(args);
  auto* y = static_cast<scalar_t*>(strip.call.y) + job.image * strip.y_plane;
  for (int o = job.row; o < min(job.row + strip.rows, strip.vertical.out); ++o) {
    for (int k = 0; k < 4; ++k) {
      if (!job.writes[k / 2]) continue;
      const int c = job.column + k / 2 * 8, channel = job.channel + k % 2;
      const int64_t pixel = static_cast<int64_t>(o) * strip.horizontal.out + c;
      y[pixel * strip.channels + channel] =
          from_opmath<scalar_t>(direct_sum<scalar_t>(strip.call, job.image, channel, o, c));
    }
  }
}

// Note [Chunks in turn]
// Eight lanes read 16 bytes each of neighbouring pixels at once, 16, 32, 64 or 128 bytes apart. They
// would read from the same banks if the copy engine did not swizzle these chunks from pixel to pixel.
template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    pixel_band_kernel(const __grid_constant__ PixelBandArgs args,
                      const __grid_constant__ CUtensorMap map) {
#if __CUDA_ARCH__ >= 900
  using scalar_t = typename S::scalar_t;
  extern __shared__ __align__(kBoxAlignment) char shared[];
  __shared__ FilterTaps<S::kTaps> taps;
  __shared__ CopyBarrier barriers[S::kStages];
  wait_for_predecessor();
  char* stages_at = shared + (-shared_address(shared) & (kOrderAlignment - 1));
  const StripArgs& strip = args.strip;
  const PixelBandJob<S> job(args);
  const int first_row = job.row + strip.vertical.start;
  const int stages = ceil_div(strip.rows + S::kLead, S::kRows);
  const int stage_bytes = strip.stage_bytes;
  const auto fetch = [&](int stage, int slot) {
    if (threadIdx.x != 0) return;
    barriers[slot].arrive_and_expect(S::kRows * strip.row_bytes);
    copy_box(stages_at + slot * stage_bytes, map,
             {job.group_channel, job.group_column + strip.horizontal.start,
              first_row + stage * S::kRows, job.image},
             barriers[slot]);
  };
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < S::kStages; ++slot) barriers[slot].init(1);
    publish_barriers();
  }
  for (int stage = 0; stage < min(S::kStages - 1, stages); ++stage) fetch(stage, stage);
  read_filter<S>(strip, taps);  // its end makes the barriers visible to all

  const int scale = scale_of_taps(taps.horizontal, S::kTaps);
  const BandOperand<S> band(taps.horizontal, 0, power_of_two(scale));
  float vertical[S::kTaps];
#pragma unroll
  for (int t = 0; t < S::kTaps; ++t) vertical[t] = taps.vertical[t] * power_of_two(-scale);

  const unsigned rows = min(strip.rows, strip.vertical.out - job.row);
  int done = -S::kLead;
  uint32_t rest = 0;
  const int64_t step = static_cast<int64_t>(strip.horizontal.out) * strip.channels;
  auto* target = static_cast<scalar_t*>(strip.call.y) + job.image * strip.y_plane +
                 (job.row + done) * step + static_cast<int64_t>(job.column) * strip.channels +
                 job.channel;
  FloatSums sums[S::kSums + 1] = {};
  for (int stage = 0, slot = 0, parity = 0; stage < stages; ++stage) {
    barriers[slot].wait(parity);
    __syncthreads();
    if (stage + S::kStages - 1 < stages) {
      fetch(stage + S::kStages - 1, slot == 0 ? S::kStages - 1 : slot - 1);
    }
    const uint32_t base = shared_address(stages_at) + slot * stage_bytes;
    int offset = job.source;
    const int end = min(S::kRows, strip.rows + S::kLead - stage * S::kRows);
#pragma unroll 1
    for (int r = 0; r < end; r += 2) {
      FloatSums filtered[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint32_t r4[4];
        load_matrices<true>(r4, base + (offset ^ (offset >> 3 & args.swizzle)));
        filtered[e] = multiply_band<S>(band, {{{r4[0], r4[1]}, {r4[2], r4[3]}}});
        offset += strip.row_bytes;
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        add_row<S>(filtered[e], vertical, 0, sums);
        const bool here = static_cast<unsigned>(done) < rows;
        const float (&sum)[4] = sums[0].value;
        if (here && job.writes[0]) write_pair(target, sum[0], sum[1], rest);
        if (here && job.writes[1]) write_pair(target + 8 * strip.channels, sum[2], sum[3], rest);
        target += step;
        ++done;
      }
    }
    if (++slot == S::kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
  if (rest != 0) write_pixels_directly<S>(args);
#endif
}

}  // namespace lltm_jit
