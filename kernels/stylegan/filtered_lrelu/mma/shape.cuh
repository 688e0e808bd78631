// The constants of a walk, known at compile time.
#pragma once

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/operands.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"

namespace lltm_jit {

template <typename scalar_t, int kUp_, int kDown_, int kUpTaps_, int kDownTaps_, Signs kSigns_,
          int kOutTiles_, int kInSlices, int kWarps_, bool kWhole_>
struct Shape {
  using scalar = scalar_t;
  using Pair = typename Arithmetic<scalar_t>::Pair;
  using Sums = typename Arithmetic<scalar_t>::Sums;
  static constexpr Signs kSigns = kSigns_;
  static constexpr MmaShape kShape{
      {kUp_, kUpTaps_}, {kDown_, kDownTaps_}, kOutTiles_, kInSlices, kWarps_, kWhole_};
  static constexpr int kUp = kUp_, kDown = kDown_, kUpTaps = kUpTaps_, kDownTaps = kDownTaps_;
  static constexpr int kUpPeriod = kShape.up.period();
  // The bands for code that runs on the GPU, which has no kShape.
  static LLTM_JIT_HOST_DEVICE constexpr UpBand up() {
    constexpr UpBand band = kShape.up;
    return band;
  }
  static LLTM_JIT_HOST_DEVICE constexpr DownBand down() {
    constexpr DownBand band = kShape.down;
    return band;
  }
  static constexpr bool kOneBlock = kInSlices != 0;
  static constexpr bool kWhole = kWhole_;

  // Columns: tiles of y, of v, and slices of x.
  static constexpr int kOutTiles = kOutTiles_;
  static constexpr int kTiles = kShape.tiles();
  static constexpr int kMapTiles = ceil_div(kTiles, 4);
  static constexpr int kMapTilesOfBlock = kOutTiles * kDown / 8;
  static_assert(kOneBlock || (kOutTiles * kDown % 8 == 0 && kOutTiles * kDown % kUp == 0),
                "blocks begin at tiles of the sign map, and at slices of x");
  static_assert(kOutTiles % 2 == 0, "tiles of y are stored in pairs");
  static constexpr int kFirstColumnSlice = kShape.first_column_slice();
  static constexpr int kLastColumnSlice = kShape.last_column_slice();
  static constexpr int kColumnSlices = kShape.column_slices();
  static constexpr int column_window() {
    int most = 0;
    for (int tile = 0; tile < kUpPeriod; ++tile) {
      most = larger(most, kShape.up.last_slice(tile) - kShape.up.first_slice(tile) + 1);
    }
    return most;
  }
  static constexpr int kColumnWindow = column_window();
  // Note [Eight samples]. In 16 bits this gains nothing if the way down has as much work.
  static constexpr bool kEight =
      kUp == 4 && kColumnWindow == 2 && (sizeof(scalar_t) == 4 || kDown != 4);

  // Rows: a step makes one tile of v from a window of slices of x. The differences between steps repeat.
  static constexpr int kFirstRowSlice = kShape.first_row_slice();
  static constexpr int kRowWindow = kShape.row_window();
  LLTM_JIT_HOST_DEVICE static constexpr int new_slices(int step) {
    return up().slices_before(step) - up().slices_before(step - 1);
  }

  // Tiles of y have 8 rows. kBegun of them begin at each kStepsBetween-th step, and each takes
  // kRowTiles steps. The sums of the last kCarried beginnings are carried from step to step.
  static constexpr int kBegun = kShape.begun();
  static constexpr int kStepsBetween = larger(kDown / 2, 1);
  static constexpr int kRowTiles = kShape.row_tiles();
  static constexpr int kUnderWay = ceil_div(kRowTiles, kStepsBetween);
  static constexpr int kCarried = larger(ceil_div(kRowTiles - 1, kStepsBetween), 1);
  static constexpr int kPeriod = larger(kUpPeriod, kStepsBetween);

  // In half, sums of more than two products with k = 16 would lose too many bits. So would sums
  // with factor 1: upsampling by 1 rounds the sums of move 1 twice already, and downsampling by 1
  // removes none of the noise.
  static constexpr bool kShortSums = kShape.down.tiles(8) <= 2 && kUp > 1 && kDown > 1;
  using RowSums = std::conditional_t<kShortSums, Sums, FloatSums>;

  static constexpr int kWarps = kWarps_;
  static constexpr int kRingChunks = kShape.ring_chunks();
  static constexpr int kStageRows = kShape.stage_rows();
  static constexpr int kStagePitch = kShape.stage_pitch(sizeof(scalar_t));
};

}  // namespace lltm_jit
