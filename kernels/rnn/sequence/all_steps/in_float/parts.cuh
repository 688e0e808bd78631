// The right factor of a product of floats, split into the tiles that tensor cores read: Note
// [Products of all steps in float] (kernels.h).
#pragma once

#include "core/launch/launch.cuh"
#include "core/products/wgmma.cuh"
#include "rnn/sequence/all_steps/in_float/kernels.h"
#include "rnn/sequence/numbers/halves.cuh"

namespace lltm_jit {

// A block computes kTile x kTile results. An instruction covers kStep of the depth, a copy to shared memory kStage.
constexpr int kTile = 128, kStep = 16, kStage = kSwizzledRow, kSteps = kStage / kStep;
constexpr int kWidth = 4;  // numbers per access

// A stage of a tile of columns, in the layout of core/products/wgmma.cuh. Column x of the tile is
// row row_of_column(x), so that a lane has the sums of four neighbouring columns.
struct StageParts {
  Half high[kTile][kStage], low[kTile][kStage];

  // Splits eight neighbouring numbers of a row.
  LLTM_JIT_DEVICE void split(int row, int chunk, const uint32_t* numbers, float scale) {
    HalfParts pairs[4];
    LLTM_JIT_UNROLLED(j, 4) pairs[j] = HalfParts(numbers[2 * j], numbers[2 * j + 1], scale);
    const int at = (chunk ^ (row % 8)) * 8;
    *reinterpret_cast<uint4*>(&high[row][at]) = {pairs[0].high, pairs[1].high, pairs[2].high,
                                                 pairs[3].high};
    *reinterpret_cast<uint4*>(&low[row][at]) = {pairs[0].low, pairs[1].low, pairs[2].low,
                                                pairs[3].low};
  }
};

LLTM_JIT_DEVICE int row_of_column(int x) {
  return x / 16 * 16 + x / 2 % 2 * 8 + x % 16 / 4 * 2 + x % 2;
}

__host__ __device__ inline int64_t stages_of(int64_t depth) { return ceil_div(depth, kStage); }

}  // namespace lltm_jit
