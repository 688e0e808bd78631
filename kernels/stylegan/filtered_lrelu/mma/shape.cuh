// What is known of a walk when it is compiled.
#pragma once

#include "stylegan/filtered_lrelu/filtered_lrelu.h"
#include "stylegan/filtered_lrelu/mma/operands.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"

namespace lltm_jit {

template <typename scalar_t, int kUpFactor, int kDownFactor, int kUpTaps, int kDownTaps,
          Signs kSigns_, int kOutTiles_, int kInSlices>
struct Shape {
  using scalar = scalar_t;
  using Pair = typename Arithmetic<scalar_t>::Pair;
  using Sums = typename Arithmetic<scalar_t>::Sums;
  using Up = lltm_jit::Up<kUpFactor, kUpTaps>;
  using Down = lltm_jit::Down<kDownFactor, kDownTaps>;
  static constexpr Signs kSigns = kSigns_;
  static constexpr MmaShape kShape{kUpFactor, kDownFactor, kUpTaps, kDownTaps, kOutTiles_, kInSlices};
  static constexpr bool kOneBlock = kInSlices != 0;

  // Columns: tiles of y, of v (and those between two blocks), and slices of x. Slices that are always
  // outside of the image do not take part.
  static constexpr int kOutTiles = kOutTiles_;
  static constexpr int kTiles = Down::tiles(8 * kOutTiles);
  static constexpr int kMapTiles = ceil_div(kTiles, 4);
  static constexpr int kMapTilesOfBlock = kOutTiles * kDownFactor / 8;
  static_assert(kOneBlock || (kOutTiles * kDownFactor % 8 == 0 && kOutTiles * kDownFactor % kUpFactor == 0),
                "blocks begin at tiles of the sign map, and at slices of x");
  static_assert(kOutTiles % 2 == 0, "tiles of y are stored in pairs");
  static constexpr int kFirstColumnSlice =
      kOneBlock ? larger(Up::first_slice(0), 0) : Up::first_slice(0);
  static constexpr int kLastColumnSlice =
      kOneBlock ? smaller(Up::last_slice(kTiles - 1), kInSlices - 1) : Up::last_slice(kTiles - 1);
  static constexpr int kColumnSlices = kLastColumnSlice - kFirstColumnSlice + 1;
  static constexpr int column_window() {
    int most = 0;
    for (int tile = 0; tile < Up::kPeriod; ++tile) {
      most = larger(most, Up::last_slice(tile) - Up::first_slice(tile) + 1);
    }
    return most;
  }
  static constexpr int kColumnWindow = column_window();

  // Rows: a step makes one tile of v from a window of slices of x. How steps differ repeats.
  static constexpr int kPeriod = larger(Up::kPeriod, kDownFactor);
  static constexpr int first_row_slice() {
    int first = 0;
    for (int tile = 0; tile < Up::kPeriod; ++tile) {
      first = smaller(first, Up::first_slice(tile) - Up::slices_before(tile));
    }
    return first;
  }
  static constexpr int kFirstRowSlice = first_row_slice();
  static constexpr int row_window() {
    int last = 0;
    for (int tile = 0; tile < Up::kPeriod; ++tile) {
      last = larger(last, Up::last_slice(tile) - Up::slices_before(tile));
    }
    return (last - kFirstRowSlice + 2) / 2 * 2;  // even, for products over 16 rows
  }
  static constexpr int kRowWindow = row_window();
  LLTM_JIT_HOST_DEVICE static constexpr int new_slices(int step) {
    return Up::slices_before(step) - Up::slices_before(step - 1);
  }

  // Tiles of y that a tile of v has a part in lie in Down::tiles(16) tiles of v; at most two are under
  // way. Their sums are carried from step to step.
  static constexpr int kRowTiles = Down::tiles(16);
  static_assert(kRowTiles <= 2 * kDownFactor, "at most two tiles of y under way");
  static constexpr bool kCarriesOlder = kRowTiles > kDownFactor + 1;

  // In half, sums of more than two products of 16 would lose too much.
  using RowSums = std::conditional_t<(Down::tiles(8) <= 2), Sums, FloatSums>;

  // A multiprocessor has one block, of as many warps as the registers allow.
  static constexpr int kWarps =
      sizeof(scalar_t) == 2 && kOutTiles * (kCarriesOlder ? 2 : 1) <= 8 ? 16 : 8;
  static constexpr int kRingChunks = kRowWindow + 2;

  static constexpr int kStagePitch = kOutTiles * 8 * int(sizeof(scalar_t)) + (sizeof(scalar_t) == 2 ? 16 : 32);
};

}  // namespace lltm_jit
