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
  int tiles_c, tiles_x, tiles_y;
  int jobs;
};

constexpr int kStripThreads = 128;
constexpr int kStripStages = 3;
constexpr int kStripRows = 4;  // input rows of a stage

template <typename T, int kUp_, int kDown_, int kTaps_, bool kSeparable_, int kVec_, int kWide_>
struct Strip {
  using scalar_t = T;
  static constexpr int kUp = kUp_, kDown = kDown_, kTaps = kTaps_, kVec = kVec_, kWide = kWide_;
  static constexpr bool kSeparable = kSeparable_;
  static constexpr int kStep = kWide * kDown / kUp;  // input columns from one thread to the next
  static constexpr int kWindow = kUp == 2 ? (kWide + kTaps) / 2 : (kWide - 1) * kDown + kTaps;
  static constexpr int kSums = kTaps / kDown;  // output rows that an input row adds to
  // A thread's loads of a plane's row, a word at least, since columns of 16 bits are read in pairs.
  static constexpr int kLoadBytes = kStep * sizeof(T) % 16 == 0  ? 16
                                    : kStep * sizeof(T) % 8 == 0 ? 8
                                                                 : 4;
  static constexpr int kWords = sizeof(T) == 2 ? (kWindow - 1) / 2 + 2 : kWindow;
  static constexpr int kLoads = (kWords * 4 + kLoadBytes - 1) / kLoadBytes;
  static constexpr int kPiece = kVec == 1 ? 4 : 16;
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
  }
};

// Whether 16-bit columns of shared memory begin one before the window: a pair of columns is copied whole.
template <typename S>
__device__ __forceinline__ int odd_start(const StripArgs& args) {
  return sizeof(typename S::scalar_t) == 2 && S::kVec == 1 && args.async ? args.horizontal.start & 1 : 0;
}

// Begins to copy row `i` of the image to shared memory; rows and columns outside are zeros.
template <typename S>
__device__ __forceinline__ void fetch_row(const StripArgs& args, const StripJob<S>& job, int i,
                                          char* target) {
  using scalar_t = typename S::scalar_t;
  constexpr int kEach = S::kPiece / sizeof(scalar_t);
  const bool row_inside = job.active && static_cast<unsigned>(i) < static_cast<unsigned>(args.vertical.in);
  const int first = job.column * S::kDown / S::kUp + args.horizontal.start;
  const unsigned width = args.horizontal.in;
  const scalar_t* row =
      row_inside ? job.x + static_cast<int64_t>(i) * args.horizontal.in * args.channels : job.x;
  if constexpr (S::kVec == 1) {
    if (args.async) {
      const int aligned = first - odd_start<S>(args);
      for (int p = job.lane; p < args.row_pieces; p += args.lanes) {
        const int column = aligned + p * kEach;
        const bool inside = row_inside && static_cast<unsigned>(column) < width;
        copy_async_4(target + p * S::kPiece, row + (inside ? column : 0), inside);
      }
    } else {
      auto* elements = reinterpret_cast<scalar_t*>(target);
      for (int p = job.lane; p < args.row_pieces * kEach; p += args.lanes) {
        const bool inside = row_inside && static_cast<unsigned>(first + p) < width;
        elements[p] = inside ? row[first + p] : scalar_t{};
      }
    }
  } else {
    const int of_pixel = args.channel_lanes * S::kVec / kEach;
    for (int p = job.lane; p < args.row_pieces; p += args.lanes) {
      const int column = first + p / of_pixel;
      const int channel = job.group_channel + p % of_pixel * kEach;
      const bool inside =
          row_inside && static_cast<unsigned>(column) < width && channel < args.channels;
      copy_async_16(target + p * S::kPiece, row + (inside ? column * args.channels + channel : 0),
                    inside);
    }
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

// The filter in registers, and the sums of the output rows that are not complete.
template <typename S>
struct StripSums {
  static constexpr int kRowsOfTaps = S::kSeparable ? 1 : S::kTaps;
  float horizontal[kRowsOfTaps][S::kTaps];
  float vertical[S::kTaps];  // of a separable filter
  float sums[S::kSums + S::kUp][S::kWide][S::kVec];

  __device__ __forceinline__ explicit StripSums(const StripArgs& args) {
    // A thread reads a tap, or a few, and all read what the others did.
    constexpr int kAll = S::kSeparable ? 2 * S::kTaps : S::kTaps * S::kTaps;
    __shared__ float taps[kAll];
    const float gain = static_cast<float>(args.call.gain);
    for (int k = threadIdx.x; k < kAll; k += kStripThreads) {
      const int row = k / S::kTaps, t = k % S::kTaps;
      taps[k] = !S::kSeparable ? gain * tap_of(args, row, t)
                : row == 0     ? tap_of(args.call, args.horizontal, t)
                               : gain * tap_of(args.call, args.vertical, t);
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < kRowsOfTaps; ++row) {
#pragma unroll
      for (int t = 0; t < S::kTaps; ++t) horizontal[row][t] = taps[row * S::kTaps + t];
    }
    if constexpr (S::kSeparable) {
#pragma unroll
      for (int t = 0; t < S::kTaps; ++t) vertical[t] = taps[S::kTaps + t];
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
    if constexpr (S::kSeparable) filter_row<S>(window, horizontal[0], filtered);
#pragma unroll
    for (int k = 0; k < S::kSums; ++k) {
      const int t = S::kDown == 2 ? 2 * (S::kSums - 1 - k) + e : S::kTaps - 1 - k;
      const int from = e == 0 ? k + S::kUp : k;
#pragma unroll
      for (int c = 0; c < S::kWide; ++c) {
#pragma unroll
        for (int v = 0; v < S::kVec; ++v) {
          sums[k][c][v] = S::kSeparable ? fmaf(vertical[t], filtered[c][v], sums[from][c][v])
                                        : sums[from][c][v];
        }
      }
      if constexpr (!S::kSeparable) filter_row<S>(window, horizontal[t], sums[k]);
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

// Begins to copy a stage's rows; `stage` counts from the strip's beginning.
template <typename S>
__device__ __forceinline__ void fetch_stage(const StripArgs& args, const StripJob<S>& job,
                                            int stage) {
  const int first = job.row * S::kDown / S::kUp + args.vertical.start + stage * kStripRows;
  char* target = job.shared + stage % kStripStages * kStripRows * args.row_bytes;
#pragma unroll 1
  for (int r = 0; r < kStripRows; ++r) fetch_row<S>(args, job, first + r, target + r * args.row_bytes);
}

template <typename S>
__global__ void __launch_bounds__(kStripThreads) strip_kernel(const __grid_constant__ StripArgs args) {
  extern __shared__ __align__(16) char shared[];
  wait_for_predecessor();
  const StripJob<S> job(args, shared);
#pragma unroll 1
  for (int stage = 0; stage < kStripStages - 1; ++stage) {
    fetch_stage<S>(args, job, stage);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  StripSums<S> state(args);
  // The first steps complete no row: kSums - 1 of them, or with kUp = 2 kTaps / 2, but for one row.
  constexpr int kLead = S::kUp == 2 ? S::kTaps / 2 : S::kSums - 1;
  const int steps = args.rows / S::kUp + kLead;
  const int stages = ceil_div(steps * S::kDown, kStripRows);
  const int last_row = min(job.row + args.rows, args.vertical.out);
  int o = job.row - kLead * S::kUp + (S::kUp == 2);
  bool finite = true;
  for (int stage = 0; stage < stages; ++stage) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStripStages - 2) : "memory");
    if (args.lanes <= 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    fetch_stage<S>(args, job, stage + kStripStages - 1);
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
        if (job.active && o + e >= job.row && o + e < last_row) {
          finite &= write_row<S>(args, job, o + e, state.sums[e]);
        }
      }
    }
  }
  if (!finite && !args.exact) write_directly<S>(args);
}

}  // namespace lltm_jit
