// A warp walks down a plane: y = D act(U x U') D' in products with banded matrices (Note [Bands]),
// all of it in registers.
//
// Note [The chain]
// A step makes one tile of rows of v, across the block's columns, in five moves:
//   1. U x     16 rows of v by 8 columns of x, for each slice of columns; x comes from the ring
//   2. (U x)U' 16 by 16 samples of v, a tile after another: the sums of 1 are operand A as they are
//   3. act, and its signs
//   4. v D'    16 rows of v by 8 columns of y: operand A again, summed over the tiles of v
//   5. D(v D') added to the tiles of y that these rows have a part in; the transpose is operand B
// The rows go first on the way up and last on the way down, so that there is one transpose, of the
// smallest intermediate result, and no row of v is computed twice. Warps share nothing but the
// taps.
#pragma once

#include "stylegan/filtered_lrelu/mma/map_words.cuh"
#include "stylegan/filtered_lrelu/mma/scales.cuh"
#include "stylegan/filtered_lrelu/mma/stage.cuh"
#include "stylegan/filtered_lrelu/mma/window.cuh"

namespace lltm_jit {

template <typename K>
struct Walk {
  using scalar_t = typename K::scalar;
  using Pair = typename K::Pair;
  using Sums = typename K::Sums;
  using Ring = RowRing<K>;
  static constexpr int kWindow = K::kRowWindow;
  static constexpr bool kBias = K::kSigns != Signs::Read;  // a derivative has none

  // Where the bias is the same for all of a tile of U x: at the inner steps all taps meet rows of the
  // image, and in a whole block all slices of columns are of the image or none of it.
  struct alignas(16) BiasPlan {
    int inner_first, inner_steps;
    bool whole;
    __device__ __forceinline__ bool is_inner(int i) const {
      return static_cast<unsigned>(i - inner_first) < static_cast<unsigned>(inner_steps);
    }
  };
  // What is the same for all lanes, in shared memory.
  struct Shared {
    Place<K> place;
    Scales<scalar_t> scales;
    float bias;
    BiasPlan bias_plan;
    float inner_bias[K::Up::kFactor];  // what it adds to U x at inner steps, by the row's phase
  };
  const MmaCall& call;
  const typename Bands<K>::UpTaps& up_taps;
  const ScaleConstants& scale_constants;
  Shared& shared;
  Ring ring;  // and 16 rows of y behind it
  Bands<K> bands;

  FloatSums newer[K::kOutTiles], older[K::kOutTiles];
  ReadSigns<K> signs;  // of the next step
  float next_bias;     // of the next walk
  float plane_sum;

  __device__ __forceinline__ void run() {
    const Place<K>& place = shared.place;
    if constexpr (kBias) next_bias = bias_of(first_walk<K>());
    if (lane() == 0) shared.scales.in_exponent = shared.scales.out_exponent = 0;
    for (int walk = first_walk<K>(); walk < call.walks; walk += walk_step<K>()) {
      if (lane() == 0) begin_shared(walk);
      __syncwarp();
      if constexpr (kBias) next_bias = bias_of(walk + walk_step<K>());
      begin(place);
      const int steps = place.steps;
      for (int i = 0; i < steps; i += K::kPeriod) steps_from<0>(place, i, steps);
      __syncwarp();
      store_tiles(place, steps - 1);
      ring.template release<kWindow - K::new_slices(0)>();
      if constexpr (K::kSigns == Signs::Read) write_plane_sum(place);
      __syncwarp();
    }
  }

 private:
  template <int kStep>
  __device__ __forceinline__ void steps_from(const Place<K>& place, int i, int steps) {
    if constexpr (kStep < K::kPeriod) {
      if (kStep == 0 || i + kStep < steps) {
        step<kStep>(place, i + kStep);
        steps_from<kStep + 1>(place, i, steps);
      }
    }
  }

  __device__ __forceinline__ void begin_shared(int walk) {
    shared.place = Place<K>(call, walk);
    const float bias = kBias ? next_bias : 0;
    shared.bias = bias;
    shared.scales.begin(scale_constants, bias, !kBias);
    if constexpr (kBias) {
      const int first = first_row(shared.place, 0);
      const int end = K::Up::kFactor * call.in_h - kTile - K::Up::kTaps + 1;
      BiasPlan& plan = shared.bias_plan;
      plan.inner_first = floor_div(-K::Up::kFactor - first, kTile) + 1;
      plan.inner_steps = max(floor_div(end - first, kTile) + 1 - plan.inner_first, 0);
      plan.whole = K::kOneBlock
                       ? kSlice * (shared.place.column_slice + K::kColumnSlices) <= call.in_w
                       : call.in_w % kSlice == 0;
      if (bias == 0) plan = {0, 1 << 30, true};
    }
  }
  __device__ __forceinline__ void begin(const Place<K>& place) {
    plane_sum = 0;
#pragma unroll
    for (int j = 0; j < K::kOutTiles; ++j) newer[j] = older[j] = zero_sums<FloatSums>();
    if constexpr (K::kSigns == Signs::Read) signs.read(call, place, 0);
  }
  __device__ __forceinline__ float bias_of(int walk) const {
    if (!call.bias || walk >= call.walks) return 0;
    const unsigned plane = Place<K>(call, walk).plane;
    const unsigned channel = plane - call.channels.divide(plane) * call.channels.divisor;
    return to_opmath(static_cast<const scalar_t*>(call.bias)[channel]);
  }
  // The sum of the taps t <= last with t = phase modulo the factor.
  __device__ __forceinline__ float sum_of_taps(int phase, int last) const {
    constexpr int kFactor = K::Up::kFactor;
    const int most = min(last, Bands<K>::UpTaps::kLast);
    const int t = most - ((most - phase) & (kFactor - 1));
    return t < 0 ? 0 : up_taps.sums[t];
  }

  // What a step leaves, results in the stage and slices of x that are done with, is seen to in the
  // next one, which has its own slices to wait for.
  template <int kStep>
  __device__ __forceinline__ void step(const Place<K>& place, int i) {
    constexpr int kNew = K::new_slices(kStep);
    wait_for_copies<Ring::kChunks - kWindow - kNew>();
    __syncwarp();
    auto limits = shared.scales.limits;
    const BiasPlan bias_plan = shared.bias_plan;
    Window<K> window;
    window.read(ring, kNew);
    ring.template release<kNew>();
    if constexpr (finishes_tiles(kStep + K::kPeriod - 1)) store_tiles(place, i - 1);

    const uint32_t largest = window.largest();
    if (!limits.keep(largest)) {
      settle_scales(largest);
      limits = shared.scales.limits;
    }
    const bool clamps =
        K::kSigns == Signs::Read ? __any_sync(~0u, signs.clamped) : largest >= limits.clamp_first;
    Pair rows[K::kColumnSlices][2];
    up_rows<kStep>(place, i, window, limits.in_scale, bias_plan, rows);
    if (K::kOneBody || clamps) {
      columns<kStep, true>(place, i, rows, clamps);
    } else {
      columns<kStep, K::kOneBody>(place, i, rows, false);
    }
  }

  // Whether a step completes tiles of y, and their way to memory.
  LLTM_JIT_HOST_DEVICE static constexpr bool finishes_tiles(int step) {
    return (step + 1 - K::kRowTiles) % K::Down::kFactor == 0;
  }
  __device__ __forceinline__ void store_tiles(const Place<K>& place, int i) const {
    const int row = (i + 1 - K::kRowTiles) * (kTile / K::Down::kFactor);
    if (row >= 0) stage_of_warp().store(place, row);
  }
  __device__ __forceinline__ Stage<K> stage_of_warp() const { return {call, ring.end}; }

  // Note [The running exponent]: brings what is carried from step to step to other scales.
  __device__ __forceinline__ void settle_scales(uint32_t largest) {
    Scales<scalar_t>& scales = shared.scales;
    const int in = scales.in_exponent, out = scales.out_exponent;
    __syncwarp();
    if (lane() == 0) {
      scales.settle(scale_constants, largest, shared.bias);
      if constexpr (kBias) settle_bias();
    }
    __syncwarp();
    if constexpr (Scales<scalar_t>::kHalf) {
      const float ratio = power_of_two(in - scales.in_exponent);
      const uint32_t ratios = pack2<Half>(ratio, ratio);
#pragma unroll
      for (int tile = 0; tile < Bands<K>::kPeriod; ++tile) {
#pragma unroll
        for (int s = 0; s < kWindow; ++s) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            bands.up_rows[tile][s][r] = half2_multiply(bands.up_rows[tile][s][r], ratios);
          }
        }
      }
    }
    const float factor = power_of_two(min(max(out - scales.out_exponent, -126), 126));
#pragma unroll
    for (int j = 0; j < K::kOutTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) newer[j].value[e] *= factor, older[j].value[e] *= factor;
    }
  }
  // In the middle of an image a sample meets the taps of its phase.
  __device__ __forceinline__ void settle_bias() {
    const float bias = shared.bias * shared.scales.limits.in_scale;
    const int first = first_row(shared.place, 0);
#pragma unroll
    for (int row = 0; row < K::Up::kFactor; ++row) {
      shared.inner_bias[row] = bias * sum_of_taps(-first - row, K::Up::kTaps);
    }
  }

  // ---- The products ----

  // Move 1 of Note [The chain], for the whole block. The bias enters as what the sums begin with.
  template <int kStep>
  __device__ __forceinline__ void up_rows(const Place<K>& place, int i, const Window<K>& window,
                                          float scale, const BiasPlan& bias_plan,
                                          Pair (&rows)[K::kColumnSlices][2]) {
    Sums start = zero_sums<Sums>();
    if constexpr (!kBias) {
      multiply_rows<kStep, false>(start, place, window, scale, rows);
    } else {
      const float inner = shared.inner_bias[fragment_row() % K::Up::kFactor];
      float top = inner, bottom = inner;
      if (!bias_plan.is_inner(i)) bias_of_rows(place, i, &top, &bottom);
      fill_rows(start, top, bottom);
      if (bias_plan.whole) {
        multiply_rows<kStep, false>(start, place, window, scale, rows);
      } else {
        multiply_rows<kStep, true>(start, place, window, scale, rows);
      }
    }
  }

  // Sums begin with `start` in columns of the image; all slices of columns lie inside or outside of it
  // as a whole, unless kMasked is set.
  template <int kStep, bool kMasked>
  __device__ __forceinline__ void multiply_rows(const Sums& start, const Place<K>& place,
                                                const Window<K>& window, float scale,
                                                Pair (&rows)[K::kColumnSlices][2]) {
    constexpr int kTileOfPeriod = kStep % K::Up::kPeriod;
    const int first_slice = K::kOneBlock ? K::kFirstColumnSlice : place.column_slice;
    const int in_slices = call.in_w / kSlice;
#pragma unroll
    for (int l = 0; l < K::kColumnSlices; ++l) {
      Sums sums = start;
      if constexpr (kMasked) {
        const int x = kSlice * (first_slice + l) + fragment_column();
        mask_columns(sums, static_cast<unsigned>(x) < static_cast<unsigned>(call.in_w),
                     static_cast<unsigned>(x + 1) < static_cast<unsigned>(call.in_w));
      } else if (kBias && !K::kOneBlock &&
                 static_cast<unsigned>(first_slice + l) >= static_cast<unsigned>(in_slices)) {
        sums = zero_sums<Sums>();
      }
#pragma unroll
      for (int s = 0; s < kWindow; s += 2) {
        const auto& band = bands.up_rows[kTileOfPeriod];
        const Pair a[4] = {band[s][0], band[s][1], band[s + 1][0], band[s + 1][1]};
        const Pair b[2] = {window.operand(l, s, scale), window.operand(l, s + 1, scale)};
        sums = multiply_add(a, b, sums);
      }
      rows[l][0] = to_pair<Pair>(sums, 0);
      rows[l][1] = to_pair<Pair>(sums, 1);
    }
  }

  // Tap t of the tile's row r is at row (first_row() + r + t) / factor of the image.
  __device__ __forceinline__ int first_row(const Place<K>& place, int i) const {
    return kTile * i - call.plan.rows.up_phase + kSlice * K::Up::kFactor * place.row_slice;
  }
  // What the bias adds to U x: times the taps of a row that meet the image.
  __device__ __forceinline__ void bias_of_rows(const Place<K>& place, int i, float* top,
                                               float* bottom) const {
    constexpr int kFactor = K::Up::kFactor;
    const int first = first_row(place, i) + fragment_row(), end = kFactor * call.in_h;
    const float bias = shared.bias * shared.scales.limits.in_scale;
    const auto inside = [&](int row) {
      return sum_of_taps(-row, end - kFactor - row) - sum_of_taps(-row, -kFactor - row);
    };
    *top = bias * inside(first);
    *bottom = bias * inside(first + 8);
  }

  // Move 2: two halves of a tile of v, each 16 rows by 8 columns.
  __device__ __forceinline__ void up_columns(int tile, const Pair (&rows)[K::kColumnSlices][2],
                                             Sums (&v)[2]) {
    constexpr int kUpFactor = K::Up::kFactor;
    const auto& band = bands.up_columns[tile % K::Up::kPeriod];
    const int begin = K::Up::first_slice(tile);
    const int first = larger(begin, K::kFirstColumnSlice);
    const int last = smaller(K::Up::last_slice(tile), K::kLastColumnSlice);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      v[half] = zero_sums<Sums>();
      int s = first;
#pragma unroll
      for (int turn = 0; turn < K::kColumnWindow; ++turn) {
        const int distance = kSlice * kUpFactor * s - kTile * tile;
        if (s > last) continue;
        const int l = s - K::kFirstColumnSlice;
        if (!K::Up::touches(distance - 8 * half)) {
          ++s;
        } else if (s < last && K::Up::touches(distance + kSlice * kUpFactor - 8 * half)) {
          const Pair a[4] = {rows[l][0], rows[l][1], rows[l + 1][0], rows[l + 1][1]};
          const Pair b[2] = {band[s - begin][half], band[s - begin + 1][half]};
          v[half] = multiply_add(a, b, v[half]);
          s += 2;
        } else {
          const Pair a[2] = {rows[l][0], rows[l][1]};
          v[half] = multiply_add(a, band[s - begin][half], v[half]);
          ++s;
        }
      }
    }
  }

  // Moves 2 to 5, a tile of v after another.
  template <int kStep, bool kClamp>
  __device__ __forceinline__ void columns(const Place<K>& place, int i,
                                          const Pair (&rows)[K::kColumnSlices][2], bool clamps) {
    constexpr int kAge = kStep % K::Down::kFactor;  // of the newer tile of y, in steps
    typename K::RowSums sums[K::kOutTiles];
    Activation<scalar_t, K::kSigns> activation(call.slope, call.pass);
    if constexpr (kClamp) activation.set_clamp(shared.scales.limit, shared.scales.boost);
    if constexpr (K::kSigns == Signs::Read) signs.align(call.map_shift);
    MapWords<K> map(call, signs, place, i, clamps);
    StepResults results(shared.scales.out_scale);
    const Stage<K> stage = stage_of_warp();
#pragma unroll
    for (int tile = 0; tile < K::kTiles; ++tile) {
      Sums v[2];
      up_columns(tile, rows, v);
      Pair a[4];
      map.begin(tile);
      activation.template apply<kClamp>(v, tile % 4, map.negative, map.clamped, a);
      map.end(tile);
#pragma unroll
      for (int j = 0; j < K::kOutTiles; ++j) {
        constexpr int kFactor = K::Down::kFactor;
        const int distance = kTile * tile - 8 * kFactor * j;
        if (!K::Down::touches(distance, 8)) continue;
        const bool first = tile == 0 || !K::Down::touches(distance - kTile, 8);
        const bool last = tile == K::kTiles - 1 || !K::Down::touches(distance + kTile, 8);
        if (first) sums[j] = zero_sums<typename K::RowSums>();
        sums[j] = multiply_add(a, bands.down_columns[distance / 8 + 1], sums[j]);
        if (!last) continue;
        const Pair b[2] = {transpose_pair(to_pair<Pair>(sums[j], 0)),
                           transpose_pair(to_pair<Pair>(sums[j], 1))};
        if constexpr (kAge + kFactor < K::kRowTiles) {
          older[j] =
              multiply_add(bands.down_rows[kAge + kFactor], b, kAge == 0 ? newer[j] : older[j]);
          if (kAge + kFactor == K::kRowTiles - 1) stage.put(place, older[j], j, results);
        }
        if constexpr (kAge < K::kRowTiles) {
          newer[j] =
              multiply_add(bands.down_rows[kAge], b, kAge == 0 ? zero_sums<FloatSums>() : newer[j]);
          if (kAge == K::kRowTiles - 1) stage.put(place, newer[j], j, results);
        }
      }
    }
    if constexpr (K::kSigns == Signs::Read) {
      if (i + 1 < place.steps) signs.read(call, place, i + 1);
      constexpr int kLast = K::kRowTiles - 1;
      const int y = kTile * (i - kLast) / K::Down::kFactor + fragment_row();
      if (kAge == kLast % K::Down::kFactor && i >= kLast && call.plane_sums) {
        const int row = kTile * place.first_row_tile + y - Place<K>::rows_before(call);
        if (row >= 0 && row < call.out_h) plane_sum += results.of_row(0);
        if (row >= -8 && row + 8 < call.out_h) plane_sum += results.of_row(1);
      }
    }
  }

  __device__ __forceinline__ void write_plane_sum(const Place<K>& place) {
    if (!call.plane_sums) return;
    float sum = plane_sum;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    const int part = place.segment * call.plan.blocks + place.block;
    if (lane() == 0) call.plane_sums[int64_t(place.plane) * call.plan.parts() + part] = sum;
  }
};

}  // namespace lltm_jit
