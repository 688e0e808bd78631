// Which part of a call a warp of the band kernel has, and how its rows come to shared memory.
#pragma once

#include "stylegan/upfirdn2d/cuda/strip.cuh"

namespace lltm_jit {

// Note [Bands]
// A warp walks down a strip of 8 blocks of 16 output columns, of one plane or of several. For each input
// row it multiplies a band matrix, which has the taps, by a matrix that has each block's window of columns
// as a column: 16 x 8 sums across, which go to the sums of the output rows as Note [Strips] has it, 4 of a
// lane. The elements are exact operands of tensor cores, and nothing converts them. A tap is not: it is
// the sum of two numbers of half, or three of bfloat16, each with a band of its own.
//
// A window begins at a multiple of 16 bytes, and the band has its first taps further right. Lane l loads
// columns l % 4 * 8 on of window l / 4 in one access, and the order of k in the products is such that these
// are its part of the operand. The order of the output columns is such that those of a lane are
// neighbours. (Note [Fragments])
//
// Zeros of the band meet elements that are none of a result's, so results that are not finite are
// computed anew, whatever the filter: Note [Taps that are not there].
template <typename T, int kDown_, int kTaps_>
struct Band {
  using scalar_t = T;
  static constexpr int kUp = 1, kDown = kDown_, kTaps = kTaps_;
  static constexpr bool kTwoDimensional = kTaps <= 4;  // takes filters that are not separable, too
  static constexpr bool kPixels = false;
  static constexpr int kParts = std::is_same_v<T, Half> ? 2 : 3;  // of a tap
  // Input rows of a stage, and stages. Blocks that an SM has room for.
  static constexpr int kRows = kDown == 2 ? 8 : 16, kStages = kDown == 2 ? 3 : 2, kBlocks = 4;
  // Products that do not wait for each other: of so many rows, and perhaps of the parts of taps.
  static constexpr int kTogether = kTaps <= 4 && kDown == 1 && kParts == 3 ? 4 : 2;
  static constexpr bool kSplit = kTaps <= 4;
  static constexpr int kSums = kTaps / kDown, kLead = kSums - 1;  // as Strip has them
  static constexpr int kStep = 16 * kDown;     // input columns from one window to the next
  static constexpr int kProducts = kDown + 1;  // of 16 columns of a window each
  static constexpr int kWindow = 16 * kProducts;
};

constexpr int kBandBlocks = 8;
constexpr int kBandWarps = kStripThreads / 32;

struct BandArgs {
  StripArgs strip;     // with what follows instead of lanes, pieces and boxes
  int blocks;          // of a plane that a warp has, an even number
  int warp_planes;     // planes that a warp has
  int window_columns;  // of x that the windows of a warp have
  bool whole_rows;     // those of a stage lie together in memory, of each plane, and are one copy
};

// Which blocks a warp has. A lane loads of window l / 4, and has results of blocks l % 4 * 2 and the next.
template <typename S>
struct BandJob {
  using scalar_t = typename S::scalar_t;
  int row, first_row;
  // The copies to shared memory: those of the warp in a row of x, and the lane's, of the rows from
  // lane_row of a stage on.
  int row_bytes;
  int lane_bytes, lane_row;
  const scalar_t* lane_x;  // row 0 of x
  uint32_t lane_target;
  // The lane's part of a window, and where it is in a row of a stage: columns below 32, and above.
  bool reads[S::kDown];
  uint32_t source[S::kDown];
  // The results, of columns 0 and 1, 16 and 17 from here.
  int64_t plane;
  int column;
  bool writes[2];

  __device__ BandJob(const BandArgs& args) {
    constexpr int kBytes = sizeof(scalar_t);
    const StripArgs& strip = args.strip;
    const unsigned job = blockIdx.x * kBandWarps + threadIdx.x / 32;
    const bool active = job < static_cast<unsigned>(strip.jobs);
    unsigned rest = active ? job : 0;
    const int first_block = rest % strip.tiles_x * args.blocks;
    rest /= strip.tiles_x;
    row = rest % strip.tiles_y * strip.rows;
    first_row = row * S::kDown + strip.vertical.start;
    const int first_plane = rest / strip.tiles_y * args.warp_planes;
    const int planes = active ? min(args.warp_planes, strip.planes - first_plane) : 0;
    const int width = strip.horizontal.in, lane = threadIdx.x % 32;
    const int window = first_block * S::kStep + strip.horizontal.start - strip.lead;
    const int begin = args.whole_rows ? 0 : max(window, 0);
    const int end = args.whole_rows ? width : min(window + args.window_columns, width);
    const int columns = max(end - begin, 0);
    row_bytes = planes * columns * kBytes;
    lane_row = args.whole_rows ? 0 : lane;
    const int lane_plane = args.whole_rows ? lane : 0;
    lane_bytes = lane_plane < planes && lane_row < S::kRows ? columns * kBytes : 0;
    lane_x = static_cast<const scalar_t*>(strip.call.x) +
             (first_plane + int64_t(lane_plane)) * strip.x_plane + begin;
    lane_target = lane_plane * S::kRows * strip.row_bytes;
    const int p = lane / 4 / args.blocks;
#pragma unroll
    for (int k = 0; k < S::kDown; ++k) {
      const int part = k == 0 ? lane % 4 * 8 : 32 + lane % 4 * 4;
      const int at = window + lane / 4 % args.blocks * S::kStep + part;
      reads[k] = p < planes && at >= begin && at < end;
      source[k] = p * S::kRows * strip.row_bytes + (at - begin) * kBytes;
    }
    const int block = lane % 4 * 2, of_tensor = block / args.blocks;
    plane = first_plane + int64_t(of_tensor);
    column = (first_block + block % args.blocks) * 16 + lane / 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      writes[h] = of_tensor < planes && column + 16 * h < strip.horizontal.out;
    }
  }

  // Begins to copy the rows of a stage to shared memory at `target`.
  __device__ __forceinline__ void fetch(const BandArgs& args, int stage, uint32_t target,
                                        CopyBarrier& barrier) const {
    const StripArgs& strip = args.strip;
    const int from = first_row + stage * S::kRows, height = strip.vertical.in;
    if (threadIdx.x % 32 == 0) {
      const int rows = min(from + S::kRows, height) - max(from, 0);
      barrier.arrive_and_expect(max(rows, 0) * row_bytes);
    }
    __syncwarp();
    const int first = max(from + lane_row, 0);
    const int end = min(from + (args.whole_rows ? S::kRows : lane_row + 1), height);
    if (lane_bytes > 0 && first < end) {
      copy_bulk(target + lane_target + (first - from) * strip.row_bytes,
                lane_x + static_cast<int64_t>(first) * strip.horizontal.in,
                (end - first) * lane_bytes, barrier);
    }
  }
};

}  // namespace lltm_jit
