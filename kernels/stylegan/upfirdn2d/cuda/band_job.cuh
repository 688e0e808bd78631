// A warp's share of a call of the band kernel, and the copies of its rows to shared memory.
#pragma once

#include "stylegan/upfirdn2d/cuda/strip.cuh"

namespace lltm_jit {

// Note [Bands]
// A warp walks down a strip of 8 blocks of 16 output columns, in one plane or several. For each input row
// it multiplies a band matrix of the taps by a matrix with each block's window of columns as a column. This
// gives 16 x 8 horizontal sums, 4 per lane, which are added to the sums of the output rows as in Note
// [Strips]. The elements are exact operands of tensor cores, without conversion. A tap is not exact: it is
// the sum of two numbers in half, or three in bfloat16, and each of them has a band of its own.
//
// A window begins at a multiple of 16 bytes, and the first taps of the band lie further right. Lane
// l loads columns l % 4 * 8 on of window l / 4 in one access, and the products number k in such an
// order that this is the lane's part of the operand. The output columns are numbered so that a
// lane's are neighbours. (Note [Fragments])
//
// The band's zeros meet elements outside of a result's support, so results that are not finite are
// computed again, whatever the filter: Note [Taps that are not there].
template <typename T, int kDown_, int kTaps_>
struct Band {
  using scalar_t = T;
  static constexpr int kUp = 1, kDown = kDown_, kTaps = kTaps_;
  static constexpr bool kTwoDimensional = kTaps <= 4;  // supports filters that are not separable
  static constexpr int kParts = std::is_same_v<T, Half> ? 2 : 3;  // of a tap
  // Input rows per stage; stages; blocks that an SM has room for.
  static constexpr int kRows = kDown == 2 ? 8 : 16, kStages = kDown == 2 ? 3 : 2, kBlocks = 4;
  // Independent products: of this many rows, and perhaps of the parts of taps.
  static constexpr int kTogether = kTaps <= 4 && kDown == 1 && kParts == 3 ? 4 : 2;
  static constexpr bool kSplit = kTaps <= 4;
  static constexpr int kSums = kTaps / kDown, kLead = kSums - 1;  // as in Strip
  static constexpr int kStep = 16 * kDown;     // input columns from one window to the next
  static constexpr int kProducts = kDown + 1;  // per window, of 16 columns each
  static constexpr int kWindow = 16 * kProducts;
};

constexpr int kBandBlocks = 8;
constexpr int kBandWarps = kStripThreads / 32;

struct BandArgs {
  StripArgs strip;     // the fields below replace its lanes, pieces and boxes
  int blocks;          // per plane and warp, an even number
  int warp_planes;     // planes per warp
  int window_columns;  // columns of x in a warp's windows
  bool whole_rows;     // a stage's rows of a plane are contiguous and are copied at once
};

// The blocks of a warp. A lane loads from window l / 4; its results are of blocks l % 4 * 2 and the next.
template <typename S>
struct BandJob {
  using scalar_t = typename S::scalar_t;
  int row, first_row;
  // The copies to shared memory: the warp's bytes per row of x, and the lane's bytes, in the rows
  // of a stage from lane_row on.
  int row_bytes;
  int lane_bytes, lane_row;
  const scalar_t* lane_x;  // row 0 of x
  uint32_t lane_target;
  // Whether the lane reads columns below 32, and above; and their places in a stage's row.
  bool reads[S::kDown];
  uint32_t source[S::kDown];
  // The lane's results: columns 0, 1, 16 and 17, counted from `column`.
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
    LLTM_JIT_UNROLLED(k, S::kDown) {
      const int part = k == 0 ? lane % 4 * 8 : 32 + lane % 4 * 4;
      const int at = window + lane / 4 % args.blocks * S::kStep + part;
      reads[k] = p < planes && at >= begin && at < end;
      source[k] = p * S::kRows * strip.row_bytes + (at - begin) * kBytes;
    }
    const int block = lane % 4 * 2, of_tensor = block / args.blocks;
    plane = first_plane + int64_t(of_tensor);
    column = (first_block + block % args.blocks) * 16 + lane / 4 * 2;
    LLTM_JIT_UNROLLED(h, 2) {
      writes[h] = of_tensor < planes && column + 16 * h < strip.horizontal.out;
    }
  }

  // Starts to copy the rows of a stage to shared memory at `target`.
  LLTM_JIT_DEVICE void fetch(const BandArgs& args, int stage, uint32_t target,
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
