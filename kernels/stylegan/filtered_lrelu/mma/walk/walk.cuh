// A warp walks down a plane: y = D act(U x U') D' in products with banded matrices (Note [Bands]),
// all of it in registers.
//
// Note [The chain]
// A step makes one tile of rows of v, across the block's columns, in five moves:
//   1. U x     16 rows of v by 8 columns of x, for each slice of columns; x comes from the ring
//   2. (U x)U' 16 by 16 samples of v, one tile after another: the sums of 1 are operand A as they are
//   3. act, and the signs
//   4. v D'    16 rows of v by 8 columns of y: operand A again, summed over the tiles of v
//   5. D(v D') added to the tiles of y that these rows have a part in
// On the way up the rows go first, and on the way down last. So there is one transpose, of the
// smallest intermediate result, and no row of v is computed twice. Move 5 computes the transpose of
// y, 16 columns by 8 rows, because a tile of y with fewer rows needs fewer rows of v; the
// transposed tile is operand A. Warps share nothing but the taps.
#pragma once

#include "stylegan/filtered_lrelu/mma/memory/map_words.cuh"
#include "stylegan/filtered_lrelu/mma/walk/rows_under_way.cuh"
#include "stylegan/filtered_lrelu/mma/walk/state.cuh"
#include "stylegan/filtered_lrelu/mma/walk/window.cuh"

namespace lltm_jit {

template <typename K>
struct Walk {
  using scalar_t = typename K::scalar;
  using Pair = typename K::Pair;
  using Sums = typename K::Sums;
  using Ring = RowRing<K>;
  static constexpr int kWindow = K::kRowWindow;
  static constexpr bool kReads = K::kSigns == Signs::Read;
  static constexpr bool kBias = WalkState<K>::kBias;
  // Reading the window early is better, unless signs need the registers.
  static constexpr bool kReadsLate = kReads && sizeof(scalar_t) == 2;
  // A window of floats is read as it is used, unless several steps share it.
  static constexpr bool kReadsColumns = sizeof(scalar_t) == 4 && K::kUp != 4;

  const MmaCall& call;
  const typename Bands<K>::UpTaps& up_taps;
  const ScaleConstants& scale_constants;
  const DownRows<K>& down_rows;
  WalkState<K>& shared;
  Ring ring;  // the stage follows it in shared memory
  Bands<K> bands;

  RowsUnderWay<K> rows_of_y;
  Window<K> window;
  ReadSigns<K> signs;
  float next_bias;  // of the next walk
  float plane_sum;
  LargestRows<K> largest_rows;  // of the next step's window
  // The next step's special work. It is known a step ahead, so that no step waits for it.
  struct Ahead {
    bool settles, clamps, at_edge;
    bool unusual;  // any work other than the products
  } ahead;
  bool boosts;  // v is multiplied before it is clamped: Note [The running exponent]

  LLTM_JIT_DEVICE void run() {
    const Place<K>& place = shared.place;
    if constexpr (kBias) next_bias = shared.bias_of(call, first_walk<K>());
    if (lane() == 0) shared.scales.in_exponent = shared.scales.out_exponent = 0;
    OutliersNote* note = shared.notes;
    for (int walk = first_walk<K>(); walk < call.walks; walk += walk_step<K>()) {
      if (lane() == 0) shared.begin(call, scale_constants, walk, next_bias);
      __syncwarp();
      if constexpr (kBias) next_bias = shared.bias_of(call, walk + walk_step<K>());
      begin(place);
      const int steps = place.steps;
      for (int i = 0; i < steps; i += K::kPeriod) steps_from<0>(place, i, steps);
      __syncwarp();
      if (lane() == 0) *note++ = shared.scales.note();
      store_tiles(place, steps - 1);
      ring.template release<kWindow - K::new_slices(0)>();
      if constexpr (kReads) write_plane_sum(call, place, plane_sum);
      __syncwarp();
    }
  }

 private:
  template <int kStep>
  LLTM_JIT_DEVICE void steps_from(const Place<K>& place, int i, int steps) {
    if constexpr (kStep < K::kPeriod) {
      if (kStep == 0 || i + kStep < steps) {
        step<kStep>(place, i + kStep);
        steps_from<kStep + 1>(place, i, steps);
      }
    }
  }

  LLTM_JIT_DEVICE void begin(const Place<K>& place) {
    plane_sum = 0;
    rows_of_y.clear();
    if constexpr (kReads) signs.begin(call, place);
    wait_for_copies<Ring::kChunks - K::new_slices(0) - kWindow>();
    look_ahead<kWindow>(0, K::new_slices(0));
  }
  // Prepares step i, the next one, whose kNew new slices begin at `first` of the ring.
  template <int kNew>
  LLTM_JIT_DEVICE void look_ahead(int i, int first) {
    largest_rows.template look_at<kNew>(ring, first);
    const auto limits = shared.scales.limits;
    uint32_t largest = largest_rows.of_lane();
    if constexpr (!Scales<scalar_t>::kHalf) {
      if (largest_rows.template new_ones_below<kNew>(shared.scales.low_count)) largest = ~0u;
    }
    largest = __reduce_max_sync(~0u, largest);
    ahead.settles = !limits.keep(largest);
    ahead.clamps = largest >= limits.clamp_first;
    ahead.at_edge = kBias && !shared.inner_steps.have(i);
    ahead.unusual = ahead.settles || ahead.at_edge || ring.chunks_left == 0;
  }
  // The next step takes care of what a step leaves, results in the stage and used slices of x,
  // because the next step waits for its own slices anyway.
  template <int kStep>
  LLTM_JIT_DEVICE void step(const Place<K>& place, int i) {
    constexpr int kNew = K::new_slices(kStep), kNext = K::new_slices(kStep + 1);
    Sums start = shared.inner_sums();
    if (__builtin_expect(ahead.unusual, false)) prepare<kNew>(place, i, start);
    wait_for_copies<Ring::kChunks - kNew - kWindow - kNext>();
    __syncwarp();
    // A step without new slices has the window of the step before.
    constexpr bool kReadsNow = kNew != 0;
    const float scale = shared.scales.limits.in_scale;
    if constexpr (kReadsNow && !kReadsLate && !kReadsColumns) window.read(ring, kNew, scale);
    ring.template fetch<kNew>();
    if constexpr (RowsUnderWay<K>::finishes_tiles(kStep + K::kPeriod - 1))
      store_tiles(place, i - 1);
    if constexpr (kReadsNow && kReadsLate) window.read(ring, 0, scale);
    const bool clamps = kReads ? signs.clamped_tiles != 0 : ahead.clamps;
    if (!clamps) {
      columns<kStep, Clamp::Never>(place, i, start, false);
    } else if (kReads || !boosts) {
      columns<kStep, Clamp::Plain>(place, i, start, clamps);
    } else {
      columns<kStep, Clamp::Boosted>(place, i, start, clamps);
    }
  }

  // Work that most steps do not have.
  template <int kNew>
  LLTM_JIT_DEVICE void prepare(const Place<K>& place, int i, Sums& start) {
    if (ahead.settles) {
      // Outliers may have turned on the clamp, which does no harm; deciding again would cost every step moves.
      settle_scales(largest_rows.without_outliers(ring, kNew, shared.scales, shared.bias));
    }
    if (ring.chunks_left == 0) ring.begin_walk();
    if constexpr (kBias) {
      start = shared.inner_sums();
      if (ahead.at_edge) shared.bias_of_rows(call, up_taps, i, start);
    }
  }

  // Stores the tiles that step i has completed.
  LLTM_JIT_DEVICE void store_tiles(const Place<K>& place, int i) const {
    stage_of_warp().store(place, rows_of_y.finished_row(i));
  }
  LLTM_JIT_DEVICE Stage<K> stage_of_warp() const { return {call, ring.end}; }

  // Note [The running exponent]: rescales the sums that are carried from step to step.
  LLTM_JIT_DEVICE void settle_scales(uint32_t largest) {
    Scales<scalar_t>& scales = shared.scales;
    const int in = scales.in_exponent, out = scales.out_exponent;
    __syncwarp();
    if (lane() == 0) {
      scales.settle(scale_constants, largest, shared.bias);
      if constexpr (kBias) shared.settle_bias(call, up_taps);
    }
    __syncwarp();
    boosts = scales.boost != 1;
    if constexpr (Scales<scalar_t>::kHalf) {
      const float ratio = power_of_two(in - scales.in_exponent);
      const uint32_t ratios = pack2<Half>(ratio, ratio);
      LLTM_JIT_UNROLLED2(tile, Bands<K>::kPeriod, s, kWindow) {
        LLTM_JIT_UNROLLED(r, 2) {
          bands.up_rows[tile][s][r] = half2_multiply(bands.up_rows[tile][s][r], ratios);
        }
      }
    }
    const float factor = power_of_two(min(max(out - scales.out_exponent, -126), 126));
    rows_of_y.multiply(factor);
  }
  // ---- The products ----

  // Move 1 of Note [The chain], for the whole block. Sums start from `start` in the image's columns.
  template <int kStep>
  LLTM_JIT_DEVICE void up_rows(const Sums& start, const Place<K>& place,
                               Pair (&rows)[K::kColumnSlices][2]) {
    const float scale = shared.scales.limits.in_scale;
    constexpr int kTileOfPeriod = kStep % K::kUpPeriod;
    const int first_slice = K::kOneBlock ? K::kFirstColumnSlice : place.column_slice;
    const int in_slices = call.args.in_w / kSlice;
    LLTM_JIT_UNROLLED(l, K::kColumnSlices) {
      if constexpr (kReadsColumns) window.read_columns(ring, 0, scale, l);
      Sums sums = start;
      if constexpr (kBias && !K::kWhole) {
        const int x = kSlice * (first_slice + l) + fragment_column();
        mask_columns(sums, static_cast<unsigned>(x) < static_cast<unsigned>(call.args.in_w),
                     static_cast<unsigned>(x + 1) < static_cast<unsigned>(call.args.in_w));
      } else if (kBias && !K::kOneBlock &&
                 static_cast<unsigned>(first_slice + l) >= static_cast<unsigned>(in_slices)) {
        sums = {};
      }
#pragma unroll
      for (int s = 0; s < kWindow; s += 2) {
        const auto& band = bands.up_rows[kTileOfPeriod];
        const Pair a[4] = {band[s][0], band[s][1], band[s + 1][0], band[s + 1][1]};
        const Pair b[2] = {window.pairs[l][s], window.pairs[l][s + 1]};
        sums = multiply_add(a, b, sums);
      }
      to_pairs(sums, rows[l]);
    }
  }

  // Move 2: two halves of a tile of v, each 16 rows by 8 columns.
  LLTM_JIT_DEVICE void up_columns(int tile, const Pair (&rows)[K::kColumnSlices][2], Sums (&v)[2]) {
    const auto& band = bands.up_columns[tile % K::kUpPeriod];
    const int begin = K::up().first_slice(tile);
    const int first = larger(begin, K::kFirstColumnSlice);
    const int last = smaller(K::up().last_slice(tile), K::kLastColumnSlice);
    LLTM_JIT_UNROLLED(half, 2) {
      v[half] = {};
      if constexpr (K::kEight) {
        const auto row = [&](int s, int r) {
          return s >= first && s <= last ? rows[s - K::kFirstColumnSlice][r] : Pair{};
        };
        const uint32_t choice = bands.choice[tile % K::kUpPeriod][half];
        const Pair a[2] = {choose_bytes(row(begin, 0), row(begin + 1, 0), choice),
                           choose_bytes(row(begin, 1), row(begin + 1, 1), choice)};
        v[half] = multiply_add(a, band[0][half], v[half]);
        continue;
      }
      int s = first;
      LLTM_JIT_UNROLLED(i, K::kColumnWindow) {
        const int distance = kSlice * K::kUp * s - kTile * tile;
        if (s > last) continue;
        const int l = s - K::kFirstColumnSlice;
        if (!K::up().touches(distance - 8 * half)) {
          ++s;
        } else if (s < last && K::up().touches(distance + kSlice * K::kUp - 8 * half)) {
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

  // Moves 2 to 5, for one tile of v after another.
  template <int kStep, Clamp kClamp>
  LLTM_JIT_DEVICE void columns(const Place<K>& place, int i, const Sums& start, bool clamps) {
    // The kinds of step begin differently, because the compiler would move their common code before
    // the branch, where it takes registers from the copies.
    asm volatile("// %0" ::"n"(int(kClamp)));
    DownRowsOfStep<K> band;
    band.template get<kStep>(down_rows);
    Pair rows[K::kColumnSlices][2];
    up_rows<kStep>(start, place, rows);
    look_ahead<K::new_slices(kStep + 1)>(i + 1, kWindow);
    typename K::RowSums sums[K::kOutTiles];
    Pair transposed[4];
    Activation<scalar_t, K::kSigns> activation(call.slope, call.pass);
    if constexpr (kClamp != Clamp::Never) {
      activation.template set_clamp<kClamp>(shared.scales.limit, shared.scales.boost);
    }
    MapWords<K> map(call, signs, place, i, clamps);
    StepResults<K> results(place, rows_of_y.finished_row(i), shared.scales.out_scale);
    const Stage<K> stage = stage_of_warp();
    LLTM_JIT_UNROLLED(tile, K::kTiles) {
      Sums v[2];
      up_columns(tile, rows, v);
      Pair a[4];
      map.begin(tile);
      activation.template apply<kClamp>(v, tile % 4, map.negative, map.clamped, a);
      map.end(tile);
      LLTM_JIT_UNROLLED(j, K::kOutTiles) {
        const int distance = kTile * tile - 8 * K::kDown * j;
        if (!K::down().touches(distance, 8)) continue;
        const bool first = tile == 0 || !K::down().touches(distance - kTile, 8);
        const bool last = tile == K::kTiles - 1 || !K::down().touches(distance + kTile, 8);
        if (first) sums[j] = {};
        sums[j] = multiply_add(a, bands.down_columns[distance / 8 + 1], sums[j]);
        if (!last) continue;
        Pair pairs[2];
        to_pairs(sums[j], pairs);
        transposed[j % 2] = transpose(pairs[0]);
        transposed[j % 2 + 2] = transpose(pairs[1]);
        if (j % 2 == 1) rows_of_y.template add<kStep>(transposed, band, j / 2, stage, results);
      }
    }
    if constexpr (kReads && RowsUnderWay<K>::finishes_tiles(kStep)) plane_sum += results.sum();
  }
};

}  // namespace lltm_jit
