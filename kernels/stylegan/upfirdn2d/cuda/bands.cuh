// The fast CUDA kernel of upfirdn2d for planes of the 16-bit types without upsampling: tensor cores
// filter the rows. It needs code for chips of 9.0 or later.
#pragma once

#include "core/products/warp_matrix.cuh"
#include "core/types/half2.cuh"
#include "stylegan/upfirdn2d/cuda/band_job.cuh"

namespace lltm_jit {

// The band of a row of taps, as the operand A of the products.
template <typename S>
struct BandOperand {
  uint32_t words[S::kParts][S::kProducts][4];

  BandOperand() = default;
  // `taps` times `scale`.
  LLTM_JIT_DEVICE BandOperand(const float* taps, int lead, float scale) {
    using scalar_t = typename S::scalar_t;
    const int lane_row = threadIdx.x % 32 / 4, lane_k = threadIdx.x % 4;
    LLTM_JIT_UNROLLED(w, S::kProducts * 4) {
      const int high = w / 2 % 2, product = w / 4;
      const int column =
          product < 2 ? lane_k * 8 + product * 4 + high * 2 : 32 + lane_k * 4 + high * 2;
      const int row = lane_row * 2 + w % 2;
      float rest[2];
      LLTM_JIT_UNROLLED(e, 2) {
        const int t = column + e - lead - row * S::kDown;
        rest[e] = static_cast<unsigned>(t) < static_cast<unsigned>(S::kTaps) ? taps[t] * scale : 0;
      }
      LLTM_JIT_UNROLLED(part, S::kParts) {
        const uint32_t pair = pack2<scalar_t>(rest[0], rest[1]);
        words[part][w / 4][w % 4] = pair;
        rest[0] -= first_of<scalar_t>(pair);
        rest[1] -= second_of<scalar_t>(pair);
      }
    }
  }
};

// An exponent that brings the largest tap to about 2^8, so that its last part is not denormal.
LLTM_JIT_DEVICE int scale_of_taps(const float* taps, int count) {
  float largest = 0;
  for (int t = 0; t < count; ++t) largest = fmaxf(largest, fabsf(taps[t]));
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return min(max(8 - exponent, -126), 126);
}
LLTM_JIT_DEVICE float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
}

// A lane's part of the windows of a row.
template <typename S>
struct BandWindows {
  uint32_t words[S::kProducts][2];
};
template <typename S>
LLTM_JIT_DEVICE BandWindows<S> load_windows(const uint32_t (&from)[S::kDown]) {
  BandWindows<S> windows;
  uint32_t four[4];
  load_words<4>(from[0], four);
  LLTM_JIT_UNROLLED(k, 4) windows.words[k / 2][k % 2] = four[k];
  if constexpr (S::kDown == 2) load_words<2>(from[1], windows.words[2]);
  return windows;
}

// band * windows, the smallest parts of the taps first, in one sum or in one for each part. With few FMAs
// to overlap, separate sums pay: fewer products wait for each other, which outweighs the additions.
template <typename S>
LLTM_JIT_DEVICE FloatSums multiply_band(const BandOperand<S>& band, const BandWindows<S>& windows) {
  FloatSums sums = {};
#pragma unroll
  for (int part = S::kParts - 1; part >= 0; --part) {
    FloatSums products = {};
    if constexpr (!S::kSplit) products = sums;
    LLTM_JIT_UNROLLED(k, S::kProducts) {
      products =
          multiply_add_as<typename S::scalar_t>(band.words[part][k], windows.words[k], products);
    }
    LLTM_JIT_UNROLLED(c, 4) {
      const bool add = S::kSplit && part < S::kParts - 1;
      sums.value[c] = add ? sums.value[c] + products.value[c] : products.value[c];
    }
  }
  return sums;
}

// Moves the sums on by a row if `e` is 0, and adds the e-th of a step's kDown input rows:
// add(t, from, to) adds its products with row t of the taps.
template <typename S, typename Add>
LLTM_JIT_DEVICE void add_row(int e, FloatSums (&sums)[S::kSums + 1], const Add& add) {
  LLTM_JIT_UNROLLED(k, S::kSums) {
    const int t = S::kDown == 2 ? 2 * (S::kSums - 1 - k) + e : S::kTaps - 1 - k;
    add(t, sums[e == 0 ? k + 1 : k].value, sums[k].value);
  }
}

// Stores two neighbouring results; `rest` becomes NaN if one of them is not finite.
template <typename scalar_t>
LLTM_JIT_DEVICE void write_pair(scalar_t* target, float first, float second, uint32_t& rest) {
  const uint32_t pair = pack2<scalar_t>(first, second);
  if constexpr (std::is_same_v<scalar_t, Half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(rest) : "r"(pair), "r"(0));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(rest) : "r"(pair), "r"(0));
  }
  *reinterpret_cast<uint32_t*>(target) = pair;
}

// Computes a lane's results again. Note [Taps that are not there]
template <typename S>
__device__ __noinline__ void write_directly(const BandArgs& args) {
  using scalar_t = typename S::scalar_t;
  const StripArgs& strip = args.strip;
  const BandJob<S> job(args);
  const int width = strip.horizontal.out, last_row = min(job.row + strip.rows, strip.vertical.out);
  auto* y = static_cast<scalar_t*>(strip.call.y) + job.plane * strip.y_plane;
  for (int o = job.row; o < last_row; ++o) {
    for (int k = 0; k < 4; ++k) {
      const int c = job.column + k / 2 * 16 + k % 2;
      if (!job.writes[k / 2]) continue;
      y[static_cast<int64_t>(o) * width + c] =
          from_opmath<scalar_t>(direct_sum<scalar_t>(strip.call, job.plane, 0, o, c));
    }
  }
}

// The number of input rows of a strip.
template <typename S>
LLTM_JIT_DEVICE int band_rows(const StripArgs& strip) {
  return (strip.rows + S::kLead) * S::kDown;
}
template <typename S>
LLTM_JIT_DEVICE int band_stages(const StripArgs& strip) {
  return ceil_div(band_rows<S>(strip), S::kRows);
}

// Walks down the strip, whose first stages are being fetched, and writes the results.
template <typename S, bool kSeparable>
LLTM_JIT_DEVICE void walk(const BandArgs& args, const BandJob<S>& job, uint32_t shared,
                          uint32_t zeros, CopyBarrier* barriers, const FilterTaps<S::kTaps>& taps) {
  using scalar_t = typename S::scalar_t;
  const StripArgs& strip = args.strip;
  constexpr int kBands = kSeparable ? 1 : S::kTaps;
  const float* all = kSeparable ? taps.horizontal : taps.all;
  const int scale = scale_of_taps(all, kBands * S::kTaps);
  const float back = power_of_two(-scale);
  BandOperand<S> bands[kBands];
  float vertical[S::kTaps];
  LLTM_JIT_UNROLLED(t, kBands) {
    bands[t] = BandOperand<S>(all + t * S::kTaps, strip.lead, power_of_two(scale));
  }
  LLTM_JIT_UNROLLED(t, S::kTaps) vertical[t] = taps.vertical[t] * back;
  FloatSums sums[S::kSums + 1] = {};
  const unsigned rows = min(strip.rows, strip.vertical.out - job.row), height = strip.vertical.in;
  int done = -S::kLead, row = job.first_row;  // of the strip; row of x
  const int width = strip.horizontal.out;
  uint32_t rest = 0;
  auto* target = static_cast<scalar_t*>(strip.call.y) + job.plane * strip.y_plane +
                 static_cast<int64_t>(job.row + done) * width + job.column;
  const int stages = band_stages<S>(strip);
  for (int stage = 0, slot = 0, parity = 0; stage < stages; ++stage) {
    barriers[slot].wait(parity);
    __syncwarp();
    const int last = slot == 0 ? S::kStages - 1 : slot - 1;
    if (stage + S::kStages - 1 < stages) {
      job.fetch(args, stage + S::kStages - 1, shared + last * strip.stage_bytes, barriers[last]);
    }
    uint32_t from[S::kDown], step[S::kDown];
    LLTM_JIT_UNROLLED(k, S::kDown) {
      from[k] = job.reads[k] ? shared + slot * strip.stage_bytes + job.source[k] : zeros;
      step[k] = job.reads[k] ? strip.row_bytes : 0;
    }
    const int end = min(S::kRows, band_rows<S>(strip) - stage * S::kRows);
#pragma unroll 1
    for (int r = 0; r < end; r += S::kTogether) {
      BandWindows<S> windows[S::kTogether];
      LLTM_JIT_UNROLLED(e, S::kTogether) {
        uint32_t at[S::kDown];
        const bool inside = static_cast<unsigned>(row + e) < height;
        LLTM_JIT_UNROLLED(k, S::kDown) {
          at[k] = inside ? from[k] : zeros;
          from[k] += step[k];
        }
        windows[e] = load_windows<S>(at);
      }
      FloatSums filtered[S::kTogether];
      if constexpr (kSeparable) {
        LLTM_JIT_UNROLLED(e, S::kTogether) filtered[e] = multiply_band<S>(bands[0], windows[e]);
      }
      LLTM_JIT_UNROLLED(e, S::kTogether) {
        add_row<S>(e % S::kDown, sums, [&](int t, const float (&from)[4], float (&to)[4]) {
          if constexpr (kSeparable) {
            const float tap = vertical[t];
            LLTM_JIT_UNROLLED(c, 4) to[c] = fmaf(tap, filtered[e].value[c], from[c]);
          } else {
            const FloatSums products = multiply_band<S>(bands[t], windows[e]);
            LLTM_JIT_UNROLLED(c, 4) to[c] = from[c] + products.value[c];
          }
        });
        if (S::kDown == 2 && e % 2 == 0) continue;
        const bool here = static_cast<unsigned>(done) < rows;
        const float factor = kSeparable ? 1 : back;
        const float (&sum)[4] = sums[0].value;
        if (here && job.writes[0]) write_pair(target, sum[0] * factor, sum[2] * factor, rest);
        if (here && job.writes[1]) write_pair(target + 16, sum[1] * factor, sum[3] * factor, rest);
        target += width;
        ++done;
      }
      row += S::kTogether;
    }
    if (++slot == S::kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
  if (rest != 0) write_directly<S>(args);
}

template <typename S>
__global__ void __launch_bounds__(kStripThreads, S::kBlocks)
    band_kernel(const __grid_constant__ BandArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(kBoxAlignment) char shared[];
  __shared__ FilterTaps<S::kTaps> taps;
  __shared__ CopyBarrier all_barriers[kBandWarps * S::kStages];
  __shared__ uint4 zeros;
  wait_for_predecessor();
  const int warp = threadIdx.x / 32;
  CopyBarrier* barriers = all_barriers + warp * S::kStages;
  if (threadIdx.x == 0) zeros = make_uint4(0, 0, 0, 0);
  if (threadIdx.x % 32 == 0) {
    for (int slot = 0; slot < S::kStages; ++slot) barriers[slot].init(1);
    publish_barriers();
  }
  __syncwarp();
  const BandJob<S> job(args);
  uint32_t zeros_at = shared_address(&zeros);
  asm volatile("" : "+r"(zeros_at));  // else the compiler computes it for each row
  const uint32_t own = shared_address(shared) + warp * S::kStages * args.strip.stage_bytes;
  for (int stage = 0; stage < min(S::kStages - 1, band_stages<S>(args.strip)); ++stage) {
    job.fetch(args, stage, own + stage * args.strip.stage_bytes, barriers[stage]);
  }
  const bool separable = read_filter<S>(args.strip, taps);
  if constexpr (S::kTwoDimensional) {
    if (!separable) {
      walk<S, false>(args, job, own, zeros_at, barriers, taps);
      return;
    }
  }
  walk<S, true>(args, job, own, zeros_at, barriers, taps);
#endif
}

}  // namespace lltm_jit
