// Strips of upfirdn2d: their arguments, and the copies of input rows to shared memory and registers.
#pragma once

#include "core/launch/launch.cuh"
#include "core/memory/async_copy.cuh"
#include "core/memory/boxes.cuh"
#include "stylegan/upfirdn2d/cuda/direct.cuh"

namespace lltm_jit {

struct StripAxis {
  int in, out;
  int start;  // the input index of output 0's first tap
  int shift;  // zero taps before the filter
  int taps;
};

struct StripArgs {
  Upfirdn2dArgs call;
  StripAxis horizontal, vertical;
  bool exact;        // the filter has kTaps on both axes
  bool wide_stores;  // rows of y are aligned for stores of kWide
  bool boxes;        // the copy engine loads rows into shared memory; else the threads do
  bool async;        // rows of x are aligned for copies of a piece
  // The columns in shared memory before a window, in all and in parts: `skip` bytes that no load
  // reads, `words` words of the first load, and if `odd` a 16-bit element.
  int lead;
  int skip, words;
  bool odd;
  int channels;              // if the channels are last, else 1
  int64_t x_plane, y_plane;  // elements of a plane, or of an image of pixels
  int rows;                  // output rows of a strip
  int lanes, channel_lanes;  // threads of a group; of these, threads along the channels
  int team;                  // threads that share stages: one group's, or several groups'
  int row_bytes;             // of a row in shared memory
  int stage_bytes;           // of the rows of all groups of a team
  int row_pieces;            // of 4 bytes in a plane's row, 16 in a row of pixels
  int lane_pieces;           // of a row that a thread copies, at most 32
  int piece_step;            // elements of x from one piece to the next
  int tiles_c, tiles_x, tiles_y;
  int jobs;    // strips of teams
  int planes;  // planes, or images of pixels, in all
};

constexpr int kStripThreads = 128;
constexpr int kBoxAlignment = 128;  // of a stage

// A kernel's factors, its taps on each axis, and the channels and columns that a thread owns.
template <typename T, int kUp_, int kDown_, int kTaps_, int kVec_, int kWide_>
struct Strip {
  using scalar_t = T;
  static constexpr int kUp = kUp_, kDown = kDown_, kTaps = kTaps_, kVec = kVec_, kWide = kWide_;
  // Whether the copy engine may load rows. Threads are faster at planes of 16 bits, and at upsampling.
  static constexpr bool kBoxes = kVec > 1 || (sizeof(T) == 4 && kUp == 1);
  // Input rows per stage, and stages. With little work per row, a stage has more rows for each wait.
  static constexpr bool kTall = kTaps > 8 && (kVec > 1 || kDown == 2);
  static constexpr bool kQuick = kTaps <= 4 && kVec == 1 && kDown == 2 && sizeof(T) == 4;
  static constexpr int kRows = kTall || kQuick ? 8 : 4, kStages = kTall ? 2 : 3;
  static constexpr int kBarriers = kStripThreads / 32 * kStages;
  // Blocks that an SM has room for. Note [Waves]
  static constexpr int kBlocks = kTaps == 12 && kUp == 1 ? (sizeof(T) == 2 ? 4 : 2) : 3;
  static constexpr bool kTwoDimensional = kTaps <= 8;  // supports filters that are not separable
  static constexpr int kStep = kWide * kDown / kUp;    // input columns from one thread to the next
  static constexpr int kWindow = kUp == 2 ? (kWide + kTaps) / 2 : (kWide - 1) * kDown + kTaps;
  static constexpr int kSums = kTaps / kDown;  // output rows that an input row adds to
  // The first steps, which complete no row, except one with kUp = 2.
  static constexpr int kLead = kUp == 2 ? kTaps / 2 : kSums - 1;
  // The size of a thread's loads of a plane's row: at least a word, since 16-bit columns are read in pairs.
  static constexpr int kLoadBytes = kStep * sizeof(T) % 16 == 0  ? 16
                                    : kStep * sizeof(T) % 8 == 0 ? 8
                                                                 : 4;
  static constexpr int kWords = sizeof(T) == 2 ? (kWindow - 1) / 2 + 2 : kWindow;
  // In a box, the window may begin at any word of the first load.
  static constexpr int kLoads = ceil_div(kWords * 4 + (kBoxes ? kLoadBytes - 4 : 0), kLoadBytes);
  static constexpr int kPiece = kVec == 1 ? 4 : 16;
  // A thread's pieces if a group is 32 lanes wide.
  static constexpr int kUsualPieces =
      (((31 * kStep + kWindow + 1) * int(sizeof(T)) + 3) / 4 + 31) / 32;
};

// The strip of a group, and the group's shared memory.
template <typename S>
struct StripJob {
  using scalar_t = typename S::scalar_t;
  const scalar_t* x;  // of the plane, or of the group's first channel in the image
  scalar_t* y;
  int64_t plane;  // number of the plane, or of the image
  int lane, lane_x, lane_c;
  int channel;  // the thread's first
  int group_channel;
  int column, row;  // of the group's first output
  bool active;
  uint32_t pieces;  // a bit for each of the thread's pieces: inside the image
  int source;       // of the first piece in a row of x, in elements
  char* shared;
  uint32_t target;        // the address in shared memory of the thread's first piece
  CopyBarrier* barriers;  // the team's S::kStages barriers

  __device__ StripJob(const StripArgs& args, char* all_shared, CopyBarrier* all_barriers) {
    const int team = threadIdx.x / args.team;
    const int group = threadIdx.x % args.team / args.lanes;
    lane = threadIdx.x % args.lanes;
    lane_c = lane % args.channel_lanes;
    lane_x = lane / args.channel_lanes;
    const unsigned job = blockIdx.x * (blockDim.x / args.team) + team;
    active = job < static_cast<unsigned>(args.jobs);
    unsigned rest = active ? job : 0;
    const int tile_c = rest % args.tiles_c;
    rest /= args.tiles_c;
    const int tile_x = rest % args.tiles_x;
    rest /= args.tiles_x;
    row = rest % args.tiles_y * args.rows;
    plane = rest / args.tiles_y * (args.team / args.lanes) + group;
    active &= plane < args.planes;
    group_channel = tile_c * args.channel_lanes * S::kVec;
    channel = group_channel + lane_c * S::kVec;
    column = tile_x * (args.lanes / args.channel_lanes) * S::kWide;
    x = static_cast<const scalar_t*>(args.call.x) + plane * args.x_plane;
    y = static_cast<scalar_t*>(args.call.y) + plane * args.y_plane;
    shared = all_shared + team * S::kStages * args.stage_bytes + group * S::kRows * args.row_bytes;
    target = shared_address(shared) + static_cast<uint32_t>(lane * S::kPiece);
    barriers = all_barriers + team * S::kStages;
    if (!uses_boxes(args)) choose_pieces(args);
  }

  static LLTM_JIT_DEVICE bool uses_boxes(const StripArgs& args) { return S::kBoxes && args.boxes; }
  // The first column of x in shared memory; first_row() is its first row.
  LLTM_JIT_DEVICE int first_column(const StripArgs& args) const {
    return column * S::kDown / S::kUp + args.horizontal.start - args.lead;
  }
  LLTM_JIT_DEVICE int first_row(const StripArgs& args) const {
    return row * S::kDown / S::kUp + args.vertical.start;
  }

 private:
  // The thread's pieces are lane, lane + lanes, and so on.
  LLTM_JIT_DEVICE void choose_pieces(const StripArgs& args) {
    constexpr int kEach = S::kPiece / sizeof(scalar_t);
    const int first = first_column(args);
    int at = first + lane * kEach, step = args.piece_step, part = 0;
    bool inside = active;
    source = at;
    if constexpr (S::kVec > 1) {
      const int of_pixel = args.channel_lanes * S::kVec / kEach;
      at = first + lane / of_pixel;
      part = group_channel + lane % of_pixel * kEach;
      step = args.piece_step / args.channels;
      inside &= part < args.channels;
      source = at * args.channels + part;
    }
    pieces = 0;
    for (int k = 0; k < args.lane_pieces; ++k) {
      const bool of_row = lane + k * args.lanes < args.row_pieces;
      const int place = at + k * step;
      if (inside && of_row &&
          static_cast<unsigned>(place) < static_cast<unsigned>(args.horizontal.in)) {
        pieces |= 1u << k;
      }
    }
  }
};

// Note [Rows in boxes]
// From 9.0 on, one thread of a team has the copy engine load the rows of a stage, with zeros outside of
// the image, for pixels, and for planes of floats without upsampling. Rows must be multiples of 16 bytes
// long, and boxes must begin at such a multiple, also below zero: any other box is an illegal
// instruction. So a window may begin later than its box, and read_window() skips words. The threads copy
// all other rows, in pieces.
template <typename S>
LLTM_JIT_DEVICE void fetch_box(const StripArgs& args, const StripJob<S>& job,
                               const CUtensorMap& map, int first, int slot) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % args.team != 0) return;
  CopyBarrier& barrier = job.barriers[slot];
  char* target = job.shared + slot * args.stage_bytes;
  const int column = job.first_column(args), plane = static_cast<int>(job.plane);
  barrier.arrive_and_expect(args.stage_bytes);
  if constexpr (S::kVec > 1) {
    copy_box(target, map, {job.group_channel, column, first, plane}, barrier);
  } else {
    copy_box(target, map, {column, first, plane}, barrier);
  }
#endif
}

// Starts to copy the rows of a stage, from row `first` on, to the group's shared memory at
// `offset`; rows and columns outside are zeros. A thread's other work for a row takes time, too: so
// it steps the addresses from row to row.
template <typename S>
LLTM_JIT_DEVICE void fetch_rows(const StripArgs& args, const StripJob<S>& job, int first,
                                int offset) {
  using scalar_t = typename S::scalar_t;
  const int64_t row_step = static_cast<int64_t>(args.horizontal.in) * args.channels;
  const scalar_t* source = job.x + (first * row_step + job.source);
  uint32_t target = job.target + offset;
  const int step = args.lanes * S::kPiece;
#pragma unroll 1
  for (int r = 0; r < S::kRows; ++r) {
    const bool inside = static_cast<unsigned>(first + r) < static_cast<unsigned>(args.vertical.in);
    const uint32_t pieces = inside ? job.pieces : 0;
    const auto copy = [&](int k) {
      // After a row's end, shared memory has room for as many pieces as there are lanes.
      copy_async<S::kPiece>(target + k * step, source + k * args.piece_step,
                            pieces >> k & 1 ? S::kPiece : 0);
    };
    if (S::kVec == 1 && args.lane_pieces == S::kUsualPieces) {
      LLTM_JIT_UNROLLED(k, S::kUsualPieces) copy(k);
    } else if (S::kVec > 1 && args.lane_pieces == 2) {
      copy(0);
      copy(1);
    } else {
#pragma unroll 1
      for (int k = 0; k < args.lane_pieces; ++k) copy(k);
    }
    source += row_step;
    target += args.row_bytes;
  }
}

// The same, but synchronous, for planes whose rows are not aligned.
template <typename S>
LLTM_JIT_DEVICE void copy_rows(const StripArgs& args, const StripJob<S>& job, int first,
                               int offset) {
  using scalar_t = typename S::scalar_t;
  const int column = job.first_column(args);
  const unsigned width = args.horizontal.in;
  const int of_row = args.row_bytes / int(sizeof(scalar_t));
  auto* elements = reinterpret_cast<scalar_t*>(job.shared + offset);
#pragma unroll 1
  for (int r = 0; r < S::kRows; ++r) {
    const bool inside = static_cast<unsigned>(first + r) < static_cast<unsigned>(args.vertical.in);
    const int64_t start = static_cast<int64_t>(first + r) * args.horizontal.in;
    for (int p = job.lane; p < of_row; p += args.lanes) {
      const bool here = inside && job.active && static_cast<unsigned>(column + p) < width;
      elements[r * of_row + p] = here ? job.x[start + column + p] : scalar_t{};
    }
  }
}

// Loads kCount words of shared memory.
template <int kCount>
LLTM_JIT_DEVICE void load_words(uint32_t address, uint32_t* words) {
  if constexpr (kCount == 4) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
  } else if constexpr (kCount == 2) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address));
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(words[0]) : "r"(address));
  }
}

// Gives the columns of a row that begin at word kFirst of `words`, or half a word later.
template <typename S, int kFirst>
LLTM_JIT_DEVICE void take_window(const uint32_t* words, bool odd,
                                 float (&window)[S::kWindow][S::kVec]) {
  using scalar_t = typename S::scalar_t;
  LLTM_JIT_UNROLLED(w, S::kWindow) {
    if constexpr (sizeof(scalar_t) == 4) {
      window[w][0] = __uint_as_float(words[w + kFirst]);
    } else {
      const uint32_t* pair = words + w / 2 + kFirst;
      const uint32_t shifted = __funnelshift_r(pair[0], pair[1], odd ? 16 : 0);
      window[w][0] = to_opmath(scalar_t{static_cast<uint16_t>(shifted >> w % 2 * 16)});
    }
  }
}

// Reads the columns that a thread's outputs need of one row from shared memory.
template <typename S>
LLTM_JIT_DEVICE void read_window(const StripArgs& args, const StripJob<S>& job, uint32_t row,
                                 float (&window)[S::kWindow][S::kVec]) {
  using scalar_t = typename S::scalar_t;
  constexpr int kBytes = S::kVec * sizeof(scalar_t);
  if constexpr (S::kVec > 1) {
    const uint32_t step = args.channel_lanes * kBytes;
    uint32_t address = row + job.lane_x * S::kStep * step + job.lane_c * kBytes;
    LLTM_JIT_UNROLLED(w, S::kWindow) {
      Pack<scalar_t, S::kVec> pack;
      load_words<kBytes / 4>(address, reinterpret_cast<uint32_t*>(pack.values));
      LLTM_JIT_UNROLLED(v, S::kVec) window[w][v] = to_opmath(pack.values[v]);
      address += step;
      // Without this, every address would be a product, which takes the FMAs' pipe.
      asm volatile("" : "+r"(address));
    }
  } else {
    constexpr int kOfLoad = S::kLoadBytes / 4;
    uint32_t words[S::kLoads * kOfLoad + 1];
    const uint32_t address = row + job.lane_x * S::kStep * kBytes + args.skip;
    LLTM_JIT_UNROLLED(k, S::kLoads) {
      load_words<kOfLoad>(address + k * S::kLoadBytes, words + k * kOfLoad);
    }
    words[S::kLoads * kOfLoad] = 0;
    // The condition is the same for all threads. A choice for each element would take longer.
    if (kOfLoad == 1 || !S::kBoxes || args.words == 0) {
      take_window<S, 0>(words, args.odd, window);
    } else if (kOfLoad == 2 || args.words == 1) {
      take_window<S, 1 % kOfLoad>(words, args.odd, window);
    } else if (args.words == 2) {
      take_window<S, 2 % kOfLoad>(words, args.odd, window);
    } else {
      take_window<S, 3 % kOfLoad>(words, args.odd, window);
    }
  }
}

}  // namespace lltm_jit
