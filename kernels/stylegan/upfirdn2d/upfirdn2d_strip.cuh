// The quick CUDA kernel of upfirdn2d: factors 1 and 2, filters of up to 24 taps, 16-bit types and float.
#pragma once

#include "core/cuda/launch.cuh"
#include "stylegan/upfirdn2d/upfirdn2d_direct.cuh"

namespace lltm_jit {

// Note [Strips]
// A thread owns kWide neighbouring output columns, of kVec neighbouring channels where those lie side by
// side, and walks down the rows. It keeps one sum for each output row that the newest input row
// contributes to: the transposed form of the filter, in which a step of the sums from one row to the
// next costs nothing, since an FMA may read one register and write another. Input rows come through
// shared memory, asynchronously and with zeros where the image ends, because a window of columns begins
// at any column while loads and stores are 16 bytes wide. Threads that share rows are a group, which has
// a strip of the image to itself: a warp or less of one plane's columns, or a block of pixels and
// channels.
//
// Note [Phases of two]
// With up = 2, input row i = start + r of a strip adds to the output rows 2 (r - kTaps / 2) + 1 + k, of
// which the first two are then complete, with the tap kTaps - 1 - k: as with up = 1, but for a step of
// two. That holds where the padding is even; an odd one puts a tap of zero before the others.
//
// Note [Taps that are not there]
// The taps of a filter shorter than kTaps are zeros, which make NaN of an infinity or NaN that they meet.
// So a result that is not finite is computed again, from the taps that are there.

struct StripAxis {
  int in, out;
  int start;  // the input index of output 0's first tap
  int shift;  // taps of zero before the filter
  int taps;
};

struct StripArgs {
  Upfirdn2dArgs call;
  StripAxis horizontal, vertical;
  bool exact;                // the filter has kTaps on both axes
  bool wide_stores;          // rows of y are aligned for stores of kWide
  bool async;                // rows of x are aligned for copies of a piece
  int channels;              // that lie side by side, else 1
  int64_t x_plane, y_plane;  // elements of a plane, or of an image of pixels
  int rows;                  // output rows of a strip
  int lanes, channel_lanes;  // threads of a group; those among the channels
  int row_bytes;             // of a row in shared memory
  int row_pieces;            // 4 bytes of a plane's row, or 16 of a row of pixels
  int lane_pieces;           // that a thread copies of a row, at most 32
  int piece_step;            // elements of x from one of them to the next
  int tiles_c, tiles_x, tiles_y;
  int jobs;
};

constexpr int kStripThreads = 128;
constexpr int kStripStages = 3;
constexpr int kStripRows = 4;  // input rows of a stage

template <typename T, int kUp_, int kDown_, int kTaps_, int kVec_, int kWide_>
struct Strip {
  using scalar_t = T;
  static constexpr int kUp = kUp_, kDown = kDown_, kTaps = kTaps_, kVec = kVec_, kWide = kWide_;
  static constexpr bool kTwoDimensional = kTaps <= 8;  // takes filters that are not separable, too
  static constexpr int kStep = kWide * kDown / kUp;  // input columns from one thread to the next
  static constexpr int kWindow = kUp == 2 ? (kWide + kTaps) / 2 : (kWide - 1) * kDown + kTaps;
  static constexpr int kSums = kTaps / kDown;  // output rows that an input row adds to
  // The first steps, which complete no row, or with kUp = 2 one.
  static constexpr int kLead = kUp == 2 ? kTaps / 2 : kSums - 1;
  // A thread's loads of a plane's row, a word at least, since columns of 16 bits are read in pairs.
  static constexpr int kLoadBytes = kStep * sizeof(T) % 16 == 0  ? 16
                                    : kStep * sizeof(T) % 8 == 0 ? 8
                                                                 : 4;
  static constexpr int kWords = sizeof(T) == 2 ? (kWindow - 1) / 2 + 2 : kWindow;
  static constexpr int kLoads = (kWords * 4 + kLoadBytes - 1) / kLoadBytes;
  static constexpr int kPiece = kVec == 1 ? 4 : 16;
  // The pieces of a thread where a group is 32 columns wide.
  static constexpr int kUsualPieces =
      (((31 * kStep + kWindow + 1) * int(sizeof(T)) + 3) / 4 + 31) / 32;
};

__device__ __forceinline__ void copy_async_4(void* target, const void* source, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(target))),
               "l"(source), "r"(inside ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_16(void* target, const void* source, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(target))),
               "l"(source), "r"(inside ? 16 : 0)
               : "memory");
}

// Whether 16-bit columns of shared memory begin one before the window: a pair of columns is copied whole.
template <typename S>
__device__ __forceinline__ int odd_start(const StripArgs& args) {
  return sizeof(typename S::scalar_t) == 2 && S::kVec == 1 && args.async ? args.horizontal.start & 1 : 0;
}

// Which strip a group has, and the group's shared memory.
template <typename S>
struct StripJob {
  using scalar_t = typename S::scalar_t;
  const scalar_t* x;  // of the plane, or of the image's first channel that the group has
  scalar_t* y;
  int64_t plane;    // its number, or the image's
  int lane, lane_x, lane_c;
  int channel;      // the first of the thread
  int group_channel;
  int column, row;  // of the first output of the group
  bool active;
  uint32_t pieces;  // which of the thread's pieces are inside the image, a bit each
  int source;       // where the first of them lies in a row of x, in elements
  char* shared;

  __device__ StripJob(const StripArgs& args, char* all_shared) {
    const int group = threadIdx.x / args.lanes;
    lane = threadIdx.x % args.lanes;
    lane_c = lane % args.channel_lanes;
    lane_x = lane / args.channel_lanes;
    const int groups = blockDim.x / args.lanes;
    const unsigned job = blockIdx.x * groups + group;
    active = job < static_cast<unsigned>(args.jobs);
    unsigned rest = active ? job : 0;
    const int tile_c = rest % args.tiles_c;
    rest /= args.tiles_c;
    const int tile_x = rest % args.tiles_x;
    rest /= args.tiles_x;
    row = rest % args.tiles_y * args.rows;
    plane = rest / args.tiles_y;
    group_channel = tile_c * args.channel_lanes * S::kVec;
    channel = group_channel + lane_c * S::kVec;
    column = tile_x * (args.lanes / args.channel_lanes) * S::kWide;
    x = static_cast<const scalar_t*>(args.call.x) + plane * args.x_plane;
    y = static_cast<scalar_t*>(args.call.y) + plane * args.y_plane;
    shared = all_shared + group * (kStripStages * kStripRows) * args.row_bytes;
    choose_pieces(args);
  }

 private:
  // The thread's pieces are lane, lane + lanes, and so on.
  __device__ __forceinline__ void choose_pieces(const StripArgs& args) {
    constexpr int kEach = S::kPiece / sizeof(scalar_t);
    const int first = column * S::kDown / S::kUp + args.horizontal.start;
    int at = first - odd_start<S>(args) + lane * kEach, step = args.piece_step, part = 0;
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
      if (inside && of_row && static_cast<unsigned>(place) < static_cast<unsigned>(args.horizontal.in)) {
        pieces |= 1u << k;
      }
    }
  }
};

// Begins to copy row `i` of the image to shared memory; rows and columns outside are zeros.
template <typename S>
__device__ __forceinline__ void fetch_row(const StripArgs& args, const StripJob<S>& job, int i,
                                          char* target) {
  using scalar_t = typename S::scalar_t;
  const bool inside = static_cast<unsigned>(i) < static_cast<unsigned>(args.vertical.in);
  const int64_t start = static_cast<int64_t>(i) * args.horizontal.in * args.channels;
  if (S::kVec == 1 && !args.async) {
    const int first = job.column * S::kDown / S::kUp + args.horizontal.start;
    const unsigned width = args.horizontal.in;
    auto* elements = reinterpret_cast<scalar_t*>(target);
    for (int p = job.lane; p < args.row_bytes / int(sizeof(scalar_t)); p += args.lanes) {
      const bool here = inside && job.active && static_cast<unsigned>(first + p) < width;
      elements[p] = here ? job.x[start + first + p] : scalar_t{};
    }
    return;
  }
  const uint32_t pieces = inside ? job.pieces : 0;
  const scalar_t* source = job.x + (start + job.source);
  target += job.lane * S::kPiece;
  const int step = args.lanes * S::kPiece;
  const auto copy = [&](int k) {
    // Past the row's end in shared memory there is room for as many pieces as there are lanes.
    if constexpr (S::kVec == 1) {
      copy_async_4(target + k * step, source + k * args.piece_step, pieces >> k & 1);
    } else {
      copy_async_16(target + k * step, source + k * args.piece_step, pieces >> k & 1);
    }
  };
  if (S::kVec == 1 && args.lane_pieces == S::kUsualPieces) {
#pragma unroll
    for (int k = 0; k < S::kUsualPieces; ++k) copy(k);
  } else if (S::kVec > 1 && args.lane_pieces == 2) {
    copy(0);
    copy(1);
  } else {
#pragma unroll 1
    for (int k = 0; k < args.lane_pieces; ++k) copy(k);
  }
}

// The columns that a thread's outputs need of one row, from shared memory.
template <typename S>
__device__ __forceinline__ void read_window(const StripArgs& args, const StripJob<S>& job,
                                            const char* row,
                                            float (&window)[S::kWindow][S::kVec]) {
  using scalar_t = typename S::scalar_t;
  if constexpr (S::kVec > 1) {
    const auto* source = reinterpret_cast<const scalar_t*>(row) +
                         (job.lane_x * S::kStep * args.channel_lanes + job.lane_c) * S::kVec;
#pragma unroll
    for (int w = 0; w < S::kWindow; ++w) {
      load_pack<S::kVec>(source + w * args.channel_lanes * S::kVec, window[w]);
    }
  } else {
    constexpr int kOfLoad = S::kLoadBytes / 4;
    uint32_t words[S::kLoads * kOfLoad];
    const auto* source =
        reinterpret_cast<const uint32_t*>(row + job.lane_x * S::kStep * sizeof(scalar_t));
#pragma unroll
    for (int k = 0; k < S::kLoads; ++k) {
      const auto pack = load_raw<kOfLoad>(source + k * kOfLoad);
#pragma unroll
      for (int v = 0; v < kOfLoad; ++v) words[k * kOfLoad + v] = pack.values[v];
    }
    if constexpr (sizeof(scalar_t) == 4) {
#pragma unroll
      for (int w = 0; w < S::kWindow; ++w) window[w][0] = __uint_as_float(words[w]);
    } else {
      const uint32_t pair = odd_start<S>(args) != 0 ? 0x5432 : 0x3210;
#pragma unroll
      for (int w = 0; w < S::kWindow; w += 2) {
        const uint32_t two = __byte_perm(words[w / 2], words[w / 2 + 1], pair);
        window[w][0] = to_opmath(scalar_t{static_cast<uint16_t>(two)});
        if (w + 1 < S::kWindow) {
          window[w + 1][0] = to_opmath(scalar_t{static_cast<uint16_t>(two >> 16)});
        }
      }
    }
  }
}

// One row's products with a row of taps, added to `sums`: of output column c, tap t meets window column
// c kDown + t, or with kUp = 2 every second tap meets every column.
template <typename S>
__device__ __forceinline__ void filter_row(const float (&window)[S::kWindow][S::kVec],
                                           const float (&taps)[S::kTaps],
                                           float (&sums)[S::kWide][S::kVec]) {
#pragma unroll
  for (int t = 0; t < S::kTaps; ++t) {
#pragma unroll
    for (int c = 0; c < S::kWide; ++c) {
      if (S::kUp == 2 && (t + c) % 2 != 0) continue;
      const int w = S::kUp == 2 ? c / 2 + t / 2 + c % 2 : c * S::kDown + t;
#pragma unroll
      for (int v = 0; v < S::kVec; ++v) sums[c][v] = fmaf(taps[t], window[w][v], sums[c][v]);
    }
  }
}

// Tap `t` of a separable filter, which may be one that is not there.
__device__ __forceinline__ float tap_of(const Upfirdn2dArgs& call, const StripAxis& axis, int t) {
  const int place = t - axis.shift;
  if (static_cast<unsigned>(place) >= static_cast<unsigned>(axis.taps)) return 0;
  if (call.f == nullptr) return 1;
  return load_tap<float>(call.f, call.filter_type, tap_of_filter(place, axis.taps, call.flip));
}
__device__ __forceinline__ float tap_of(const StripArgs& args, int ty, int tx) {
  const Upfirdn2dArgs& call = args.call;
  const StripAxis &x = args.horizontal, &y = args.vertical;
  if (call.separable) return tap_of(call, x, tx) * tap_of(call, y, ty);
  const int px = tx - x.shift, py = ty - y.shift;
  if (static_cast<unsigned>(px) >= static_cast<unsigned>(x.taps) ||
      static_cast<unsigned>(py) >= static_cast<unsigned>(y.taps)) {
    return 0;
  }
  return load_tap<float>(
      call.f, call.filter_type,
      tap_of_filter(py, y.taps, call.flip) * x.taps + tap_of_filter(px, x.taps, call.flip));
}

// Note [Filters of rank one]
// A 2-D filter is most often the outer product of two others, within rounding, and then costs as few
// products as they do. Every block looks by itself, since the host does not know the taps: with the
// largest tap at (p, q), each tap must be the product of f[i][q] and f[p][j] / f[p][q]. The bound is two
// roundings of the largest tap.
template <int kTaps>
struct FilterTaps {
  float horizontal[kTaps], vertical[kTaps];  // of a separable filter
  float all[kTaps <= 8 ? kTaps * kTaps : 1];
  unsigned long long largest;  // the bits of |tap|, then its place
};

// Reads the filter to shared memory, with the gain; whether it is separable.
template <typename S>
__device__ __forceinline__ bool read_filter(const StripArgs& args, FilterTaps<S::kTaps>& taps) {
  constexpr int kTaps = S::kTaps, kAll = kTaps * kTaps;
  const float gain = static_cast<float>(args.call.gain);
  const int k = threadIdx.x;
  if (!S::kTwoDimensional || args.call.separable) {
    if (k < kTaps) {
      taps.horizontal[k] = tap_of(args.call, args.horizontal, k);
      taps.vertical[k] = gain * tap_of(args.call, args.vertical, k);
    }
    __syncthreads();
    return true;
  }
  if (k == 0) taps.largest = 0;
  __syncthreads();
  const float tap = k < kAll ? gain * tap_of(args, k / kTaps, k % kTaps) : 0;
  if (k < kAll) {
    taps.all[k] = tap;
    atomicMax(&taps.largest,
              static_cast<unsigned long long>(__float_as_uint(fabsf(tap))) << 32 | unsigned(k));
  }
  __syncthreads();
  const int place = static_cast<int>(taps.largest & 0xffffffff), p = place / kTaps, q = place % kTaps;
  const float largest = taps.all[place];
  bool fits = largest != 0;
  if (k < kAll) {
    const float across = taps.all[p * kTaps + k % kTaps] / largest;
    const float down = taps.all[k / kTaps * kTaps + q];
    fits &= fabsf(tap - across * down) <= 2.4e-7f * fabsf(largest);
    if (k < kTaps) taps.horizontal[k] = across;
    if (k % kTaps == 0) taps.vertical[k / kTaps] = down;
  }
  return __syncthreads_and(fits);
}

// The filter in registers, and the sums of the output rows that are not complete.
template <typename S, bool kSeparable>
struct StripSums {
  static constexpr int kRowsOfTaps = kSeparable ? 1 : S::kTaps;
  float horizontal[kRowsOfTaps][S::kTaps];
  float vertical[S::kTaps];  // of a separable filter
  float sums[S::kSums + S::kUp][S::kWide][S::kVec];

  __device__ __forceinline__ explicit StripSums(const FilterTaps<S::kTaps>& taps) {
#pragma unroll
    for (int row = 0; row < kRowsOfTaps; ++row) {
#pragma unroll
      for (int t = 0; t < S::kTaps; ++t) {
        horizontal[row][t] = kSeparable ? taps.horizontal[t] : taps.all[row * S::kTaps + t];
      }
    }
    if constexpr (kSeparable) {
#pragma unroll
      for (int t = 0; t < S::kTaps; ++t) vertical[t] = taps.vertical[t];
    }
#pragma unroll
    for (int k = 0; k < S::kSums + S::kUp; ++k) {
#pragma unroll
      for (int c = 0; c < S::kWide; ++c) {
#pragma unroll
        for (int v = 0; v < S::kVec; ++v) sums[k][c][v] = 0;
      }
    }
  }

  // Adds the e-th of the kDown rows of a step; the first moves the sums on by kUp rows.
  __device__ __forceinline__ void add(const float (&window)[S::kWindow][S::kVec], int e) {
    float filtered[S::kWide][S::kVec] = {};
    if constexpr (kSeparable) filter_row<S>(window, horizontal[0], filtered);
#pragma unroll
    for (int k = 0; k < S::kSums; ++k) {
      const int t = S::kDown == 2 ? 2 * (S::kSums - 1 - k) + e : S::kTaps - 1 - k;
      const int from = e == 0 ? k + S::kUp : k;
#pragma unroll
      for (int c = 0; c < S::kWide; ++c) {
#pragma unroll
        for (int v = 0; v < S::kVec; ++v) {
          sums[k][c][v] = kSeparable ? fmaf(vertical[t], filtered[c][v], sums[from][c][v])
                                     : sums[from][c][v];
        }
      }
      if constexpr (!kSeparable) filter_row<S>(window, horizontal[t], sums[k]);
    }
  }
};

// Writes the thread's part of output row `o`; whether all of it is finite.
template <typename S>
__device__ __forceinline__ bool write_row(const StripArgs& args, const StripJob<S>& job, int o,
                                          const float (&sums)[S::kWide][S::kVec]) {
  using scalar_t = typename S::scalar_t;
  const int column = job.column + job.lane_x * S::kWide;
  if (column >= args.horizontal.out || job.channel >= args.channels) return true;
  float zero = 0;  // or NaN
#pragma unroll
  for (int c = 0; c < S::kWide; ++c) {
#pragma unroll
    for (int v = 0; v < S::kVec; ++v) zero = fmaf(sums[c][v], 0.0f, zero);
  }
  scalar_t* target =
      job.y + (static_cast<int64_t>(o) * args.horizontal.out + column) * args.channels + job.channel;
  if (S::kVec == 1 && args.wide_stores) {
    float values[S::kWide];
#pragma unroll
    for (int c = 0; c < S::kWide; ++c) values[c] = sums[c][0];
    store_pack<S::kWide>(target, values);
    return zero == 0;
  }
#pragma unroll
  for (int c = 0; c < S::kWide; ++c) {
    if (column + c < args.horizontal.out) store_pack<S::kVec>(target + c * args.channels, sums[c]);
  }
  return zero == 0;
}

// Writes the thread's part of all rows anew. Note [Taps that are not there]
template <typename S>
__device__ __noinline__ void write_directly(const StripArgs& args) {
  using scalar_t = typename S::scalar_t;
  const StripJob<S> job(args, nullptr);
  const int column = job.column + job.lane_x * S::kWide;
  const int end = min(column + S::kWide, args.horizontal.out);
  const int last_row = min(job.row + args.rows, args.vertical.out);
  for (int o = job.row; o < last_row; ++o) {
    for (int c = column; c < end; ++c) {
      for (int v = 0; v < S::kVec; ++v) {
        job.y[(static_cast<int64_t>(o) * args.horizontal.out + c) * args.channels + job.channel + v] =
            from_opmath<scalar_t>(
                direct_sum<scalar_t>(args.call, job.plane, job.channel + v, o, c));
      }
    }
  }
}

template <typename S>
__device__ __forceinline__ int stages_of(const StripArgs& args) {
  return ceil_div((args.rows / S::kUp + S::kLead) * S::kDown, kStripRows);
}

// Begins to copy a stage's rows; `stage` counts from the strip's beginning.
template <typename S>
__device__ __forceinline__ void fetch_stage(const StripArgs& args, const StripJob<S>& job,
                                            int stage) {
  const int first = job.row * S::kDown / S::kUp + args.vertical.start + stage * kStripRows;
  char* target = job.shared + stage % kStripStages * kStripRows * args.row_bytes;
#pragma unroll 1
  for (int r = 0; r < kStripRows; ++r) fetch_row<S>(args, job, first + r, target + r * args.row_bytes);
}

// Walks down the strip, of which the first stages are on their way; whether all results are finite.
template <typename S, bool kSeparable>
__device__ __forceinline__ bool walk(const StripArgs& args, const StripJob<S>& job,
                                     const FilterTaps<S::kTaps>& taps) {
  StripSums<S, kSeparable> state(taps);
  const int stages = stages_of<S>(args);
  const int last_row = job.active ? min(job.row + args.rows, args.vertical.out) : 0;
  int o = job.row - S::kLead * S::kUp + (S::kUp == 2);
  bool finite = true;
  for (int stage = 0; stage < stages; ++stage) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStripStages - 2) : "memory");
    if (args.lanes <= 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    if (stage + kStripStages - 1 < stages) fetch_stage<S>(args, job, stage + kStripStages - 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const char* rows = job.shared + stage % kStripStages * kStripRows * args.row_bytes;
#pragma unroll 1
    for (int r = 0; r < kStripRows; r += S::kDown, o += S::kUp) {
#pragma unroll
      for (int e = 0; e < S::kDown; ++e) {
        float window[S::kWindow][S::kVec];
        read_window<S>(args, job, rows + (r + e) * args.row_bytes, window);
        state.add(window, e);
      }
#pragma unroll
      for (int e = 0; e < S::kUp; ++e) {
        if (o + e >= job.row && o + e < last_row) {
          finite &= write_row<S>(args, job, o + e, state.sums[e]);
        }
      }
    }
  }
  return finite;
}

template <typename S>
__global__ void __launch_bounds__(kStripThreads) strip_kernel(const __grid_constant__ StripArgs args) {
  extern __shared__ __align__(16) char shared[];
  __shared__ FilterTaps<S::kTaps> taps;
  wait_for_predecessor();
  const StripJob<S> job(args, shared);
#pragma unroll 1
  for (int stage = 0; stage < kStripStages - 1; ++stage) {
    if (stage < stages_of<S>(args)) fetch_stage<S>(args, job, stage);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  const bool separable = read_filter<S>(args, taps);
  bool finite;
  if constexpr (S::kTwoDimensional) {
    finite = separable ? walk<S, true>(args, job, taps) : walk<S, false>(args, job, taps);
  } else {
    finite = walk<S, true>(args, job, taps);
  }
  if (!finite && !args.exact) write_directly<S>(args);
}

}  // namespace lltm_jit
