// The fast CUDA kernel of upfirdn2d: factors 1 and 2, filters of up to 24 taps, 16-bit types and float.
#pragma once

#include "stylegan/upfirdn2d/cuda/strip_rows.cuh"

namespace lltm_jit {

// Note [Strips]
// A thread owns kWide neighbouring output columns (with channels last, of kVec neighbouring
// channels) and walks down the rows. It keeps one sum for each output row that the newest input row
// contributes to. This is the filter's transposed form: moving the sums from one row to the next
// costs nothing, because an FMA may read one register and write another. Input rows go through
// shared memory, asynchronously, with zeros outside of the image, because a window of columns
// begins at any column while loads and stores are 16 bytes wide. Threads that share rows are a
// group, which has a strip of the image to itself: a warp or less with columns of one plane, or a
// block with pixels and channels.
//
// Note [Phases of two]
// With up = 2, input row i = start + r of a strip adds to the output rows 2 (r - kTaps / 2) + 1 +
// k, with the tap kTaps - 1 - k. The first two of these rows are then complete: as with up = 1, but
// in steps of two. This holds for even padding; odd padding puts a tap of zero before the others.
//
// Note [Taps that are not there]
// A filter shorter than kTaps is filled up with zeros, which make NaN of an infinity or NaN. So a
// result that is not finite is computed again, with the filter's own taps only.

// Adds one row's products with a row of taps to `sums`. For output column c, tap t meets window
// column c kDown + t; with kUp = 2, every second tap meets every column.
template <typename S>
LLTM_JIT_DEVICE void filter_row(const float (&window)[S::kWindow][S::kVec],
                                const float (&taps)[S::kTaps], float (&sums)[S::kWide][S::kVec]) {
  LLTM_JIT_UNROLLED2(t, S::kTaps, c, S::kWide) {
    if (S::kUp == 2 && (t + c) % 2 != 0) continue;
    const int w = S::kUp == 2 ? c / 2 + t / 2 + c % 2 : c * S::kDown + t;
    LLTM_JIT_UNROLLED(v, S::kVec) sums[c][v] = fmaf(taps[t], window[w][v], sums[c][v]);
  }
}

// Tap `t` of a separable filter, or zero beyond its taps.
LLTM_JIT_DEVICE float tap_of(const Upfirdn2dArgs& call, const StripAxis& axis, int t) {
  const int place = t - axis.shift;
  if (static_cast<unsigned>(place) >= static_cast<unsigned>(axis.taps)) return 0;
  if (call.f == nullptr) return 1;
  return load_tap<float>(call.f, call.filter_type, tap_of_filter(place, axis.taps, call.flip));
}
LLTM_JIT_DEVICE float tap_of(const StripArgs& args, int ty, int tx) {
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
// A 2-D filter mostly is the outer product of two 1-D filters, within rounding, and then costs as few
// products as these. Every block checks this, because the host does not know the taps: with the largest tap
// at (p, q), each tap must be the product of f[i][q] and f[p][j] / f[p][q]. The bound is eight roundings of
// the tap itself, even if it is much smaller than the largest, because as many numbers were rounded.
template <int kTaps>
struct FilterTaps {
  float horizontal[kTaps], vertical[kTaps];  // of a separable filter
  float all[kTaps <= 8 ? kTaps * kTaps : 1];
  unsigned long long largest;  // the bits of |tap|, then its place
};

// Reads the filter into shared memory and applies the gain; returns whether it is separable.
template <typename S>
LLTM_JIT_DEVICE bool read_filter(const StripArgs& args, FilterTaps<S::kTaps>& taps) {
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
  const int place = static_cast<int>(taps.largest & 0xffffffff), p = place / kTaps,
            q = place % kTaps;
  const float largest = taps.all[place];
  bool fits = largest != 0;
  if (k < kAll) {
    const float across = taps.all[p * kTaps + k % kTaps] / largest;
    const float down = taps.all[k / kTaps * kTaps + q];
    fits &= fabsf(tap - across * down) <= 4.8e-7f * fabsf(tap);
    if (k < kTaps) taps.horizontal[k] = across;
    if (k % kTaps == 0) taps.vertical[k / kTaps] = down;
  }
  return __syncthreads_and(fits);
}

template <int kRows, int kColumns>
LLTM_JIT_DEVICE void clear(float (&values)[kRows][kColumns]) {
  LLTM_JIT_UNROLLED(k, kRows * kColumns) values[k / kColumns][k % kColumns] = 0;
}

// The filter in registers, and the sums of the output rows in progress.
template <typename S, bool kSeparable>
struct StripSums {
  static constexpr int kRowsOfTaps = kSeparable ? 1 : S::kTaps;
  float horizontal[kRowsOfTaps][S::kTaps];
  float vertical[S::kTaps];  // of a separable filter
  float sums[S::kSums + S::kUp][S::kWide][S::kVec];

  LLTM_JIT_DEVICE explicit StripSums(const FilterTaps<S::kTaps>& taps) {
    LLTM_JIT_UNROLLED2(row, kRowsOfTaps, t, S::kTaps) {
      horizontal[row][t] = kSeparable ? taps.horizontal[t] : taps.all[row * S::kTaps + t];
    }
    if constexpr (kSeparable) {
      LLTM_JIT_UNROLLED(t, S::kTaps) vertical[t] = taps.vertical[t];
    }
    LLTM_JIT_UNROLLED(k, S::kSums + S::kUp) clear(sums[k]);
  }

  // Adds the e-th of a step's kDown rows; the first one moves the sums on by kUp rows. Rows outside
  // of the image are zeros and are not read.
  LLTM_JIT_DEVICE void add(const StripArgs& args, const StripJob<S>& job, uint32_t row, bool inside,
                           int e) {
    float window[S::kWindow][S::kVec], filtered[S::kWide][S::kVec] = {};
    if constexpr (!kSeparable) clear(window);
    if (inside) {
      read_window<S>(args, job, row, window);
      if constexpr (kSeparable) filter_row<S>(window, horizontal[0], filtered);
    }
    LLTM_JIT_UNROLLED(k, S::kSums) {
      const int t = S::kDown == 2 ? 2 * (S::kSums - 1 - k) + e : S::kTaps - 1 - k;
      const int from = e == 0 ? k + S::kUp : k;
      LLTM_JIT_UNROLLED2(c, S::kWide, v, S::kVec) {
        sums[k][c][v] =
            kSeparable ? fmaf(vertical[t], filtered[c][v], sums[from][c][v]) : sums[from][c][v];
      }
      if constexpr (!kSeparable) filter_row<S>(window, horizontal[t], sums[k]);
    }
  }
};

// Writes the thread's part of an output row, of which `left` columns are in the image. Returns
// whether it is all finite, if that matters.
template <typename S>
LLTM_JIT_DEVICE bool write_row(const StripArgs& args, typename S::scalar_t* target, int left,
                               const float (&sums)[S::kWide][S::kVec]) {
  if (S::kVec == 1 && args.wide_stores) {
    float values[S::kWide];
    LLTM_JIT_UNROLLED(c, S::kWide) values[c] = sums[c][0];
    store_pack<S::kWide>(target, values);
  } else {
    LLTM_JIT_UNROLLED(c, S::kWide) {
      if (c < left) store_pack<S::kVec>(target + c * args.channels, sums[c]);
    }
  }
  if (args.exact) return true;
  float zero = 0;  // or NaN
  LLTM_JIT_UNROLLED2(c, S::kWide, v, S::kVec) zero = fmaf(sums[c][v], 0.0f, zero);
  return zero == 0;
}

// Computes the thread's part of all rows again. Note [Taps that are not there]
template <typename S>
__device__ __noinline__ void write_directly(const StripArgs& args) {
  using scalar_t = typename S::scalar_t;
  const StripJob<S> job(args, nullptr, nullptr);
  const int column = job.column + job.lane_x * S::kWide;
  const int end = min(column + S::kWide, args.horizontal.out);
  const int last_row = min(job.row + args.rows, args.vertical.out);
  for (int o = job.row; o < last_row; ++o) {
    for (int c = column; c < end; ++c) {
      for (int v = 0; v < S::kVec; ++v) {
        job.y[(static_cast<int64_t>(o) * args.horizontal.out + c) * args.channels + job.channel +
              v] = from_opmath<scalar_t>(direct_sum<scalar_t>(args.call, job.plane, job.channel + v,
                                                              o, c));
      }
    }
  }
}

template <typename S>
LLTM_JIT_DEVICE int stages_of(const StripArgs& args) {
  return ceil_div((args.rows / S::kUp + S::kLead) * S::kDown, S::kRows);
}

// Starts to copy a stage's rows to slot `slot`; `stage` counts from the strip's beginning.
template <typename S>
LLTM_JIT_DEVICE void fetch_stage(const StripArgs& args, const StripJob<S>& job,
                                 const CUtensorMap& map, int stage, int slot) {
  const int first = job.first_row(args) + stage * S::kRows;
  if (job.uses_boxes(args)) {
    fetch_box<S>(args, job, map, first, slot);
  } else if (S::kVec == 1 && !args.async) {
    copy_rows<S>(args, job, first, slot * args.stage_bytes);
  } else {
    fetch_rows<S>(args, job, first, slot * args.stage_bytes);
  }
  commit_copies();
}

// Waits until a slot's rows have arrived and the team has finished with the slot before.
template <typename S>
LLTM_JIT_DEVICE void wait_for_stage(const StripArgs& args, const StripJob<S>& job, int slot,
                                    int parity) {
  if (job.uses_boxes(args)) {
#if __CUDA_ARCH__ >= 900
    job.barriers[slot].wait(parity);
#endif
  } else {
    wait_for_copies<S::kStages - 2>();
  }
  if (args.team == 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// Walks down the strip, whose first stages are being fetched; returns whether all results are finite.
template <typename S, bool kSeparable>
LLTM_JIT_DEVICE bool walk(const StripArgs& args, const StripJob<S>& job, const CUtensorMap& map,
                          const FilterTaps<S::kTaps>& taps) {
  StripSums<S, kSeparable> state(taps);
  const int stages = stages_of<S>(args);
  const int column = job.column + job.lane_x * S::kWide, left = args.horizontal.out - column;
  const bool writes = job.active && left > 0 && job.channel < args.channels;
  const unsigned rows = writes ? min(args.rows, args.vertical.out - job.row) : 0;
  int done = (S::kUp == 2) - S::kLead * S::kUp;  // output rows of the strip
  const int64_t step = static_cast<int64_t>(args.horizontal.out) * args.channels;
  auto* target =
      job.y + (job.row + done) * step + static_cast<int64_t>(column) * args.channels + job.channel;
  bool finite = true;
  const int first = job.first_row(args);
  for (int stage = 0, slot = 0, parity = 0; stage < stages; ++stage) {
    wait_for_stage<S>(args, job, slot, parity);
    const int last = slot == 0 ? S::kStages - 1 : slot - 1;
    if (stage + S::kStages - 1 < stages) {
      fetch_stage<S>(args, job, map, stage + S::kStages - 1, last);
    } else if (!job.uses_boxes(args)) {
      commit_copies();
    }
    uint32_t source = shared_address(job.shared) + slot * args.stage_bytes;
#pragma unroll 1
    for (int r = 0; r < S::kRows; r += S::kDown) {
      LLTM_JIT_UNROLLED(e, S::kDown) {
        const unsigned i = first + stage * S::kRows + r + e;
        state.add(args, job, source, i < static_cast<unsigned>(args.vertical.in), e);
        source += args.row_bytes;
      }
      LLTM_JIT_UNROLLED(e, S::kUp) {
        if (static_cast<unsigned>(done + e) < rows) {
          finite &= write_row<S>(args, target, left, state.sums[e]);
        }
        target += step;
      }
      done += S::kUp;
    }
    if (++slot == S::kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
  return finite;
}

template <typename S>
__global__ void __launch_bounds__(kStripThreads, S::kBlocks)
    strip_kernel(const __grid_constant__ StripArgs args, const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(kBoxAlignment) char shared[];
  __shared__ FilterTaps<S::kTaps> taps;
  __shared__ CopyBarrier barriers[S::kBarriers];
  wait_for_predecessor();
  const StripJob<S> job(args, shared, barriers);
#if __CUDA_ARCH__ >= 900
  if (job.uses_boxes(args) && threadIdx.x % args.team == 0) {
    for (int slot = 0; slot < S::kStages; ++slot) job.barriers[slot].init(1);
    publish_barriers();
  }
#endif
#pragma unroll 1
  for (int stage = 0; stage < S::kStages - 1; ++stage) {
    if (stage < stages_of<S>(args)) fetch_stage<S>(args, job, map, stage, stage);
  }
  const bool separable = read_filter<S>(args, taps);  // its end makes the barriers visible to all
  bool finite;
  if constexpr (S::kTwoDimensional) {
    finite = separable ? walk<S, true>(args, job, map, taps) : walk<S, false>(args, job, map, taps);
  } else {
    finite = walk<S, true>(args, job, map, taps);
  }
  if (!finite && !args.exact) write_directly<S>(args);
}

}  // namespace lltm_jit
