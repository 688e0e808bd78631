// The last product of Note [The chain], and the tiles of y in progress: 16 columns by 8 rows.
#pragma once

#include "stylegan/filtered_lrelu/mma/bands.cuh"
#include "stylegan/filtered_lrelu/mma/memory/stage.cuh"

namespace lltm_jit {

// The band of the last product, as operand B: 16 rows of v by 8 rows of y. It is in shared memory,
// because a step needs only a few of its tiles.
template <typename K>
struct DownRows {
  using Pair = typename K::Pair;
  // A lane's two registers of a tile. For floats, the high parts come first and then the low ones,
  // because the registers of an operand are neighbours.
  struct alignas(2 * sizeof(Pair)) OfLane {
    uint32_t parts[sizeof(Pair) / 4][2];
    LLTM_JIT_DEVICE void get(Pair (&pairs)[2]) const {
      LLTM_JIT_UNROLLED(r, 2) {
        if constexpr (sizeof(Pair) == 4) {
          pairs[r] = parts[0][r];
        } else {
          pairs[r] = {parts[0][r], parts[1][r]};
        }
      }
    }
    LLTM_JIT_DEVICE void set(int r, uint32_t pair) { parts[0][r] = pair; }
    LLTM_JIT_DEVICE void set(int r, const SplitPair& pair) {
      parts[0][r] = pair.high;
      parts[1][r] = pair.low;
    }
  };
  // The tiles, by the number of steps since their tile of y began, and by its place among those that began together.
  OfLane tiles[K::kRowTiles][K::kBegun][32];

  // All warps of a block call it together.
  template <typename DownTaps>
  LLTM_JIT_DEVICE void make(const DownTaps& down, int phase) {
    const int row = fragment_row(), k = fragment_column();
    for (int tile = threadIdx.x / 32; tile < K::kRowTiles * K::kBegun; tile += K::kWarps) {
      const int age = tile / K::kBegun, of_begun = tile % K::kBegun;
      LLTM_JIT_UNROLLED(r, 2) {
        const int t = kTile * age - kSlice * of_begun + k + r * 8 - K::kDown * row - phase;
        tiles[age][of_begun][lane()].set(r, make_pair<Pair>(down(t), down(t + 1)));
      }
    }
  }
};

// The tiles that a step needs.
template <typename K>
struct DownRowsOfStep {
  typename K::Pair tiles[K::kUnderWay][K::kBegun][2];

  template <int kStep>
  LLTM_JIT_DEVICE void get(const DownRows<K>& band) {
    LLTM_JIT_UNROLLED(begin, K::kUnderWay) {
      const int age = kStep % K::kStepsBetween + begin * K::kStepsBetween;
      if (age >= K::kRowTiles) continue;
      LLTM_JIT_UNROLLED(b, K::kBegun) band.tiles[age][b][lane()].get(tiles[begin][b]);
    }
  }
};

// The sums that are carried from step to step.
template <typename K>
struct RowsUnderWay {
  using Pair = typename K::Pair;

  FloatSums carried[K::kCarried][K::kBegun][K::kOutTiles / 2];  // the latest beginning comes first

  template <typename Function>
  LLTM_JIT_DEVICE void for_each(const Function& function) {
#pragma unroll
    for (auto& begun : carried) {
#pragma unroll
      for (auto& tiles : begun) {
#pragma unroll
        for (FloatSums& sums : tiles) function(sums);
      }
    }
  }
  LLTM_JIT_DEVICE void clear() {
    for_each([](FloatSums& sums) { sums = {}; });
  }
  LLTM_JIT_DEVICE void multiply(float factor) {
    for_each([&](FloatSums& sums) {
#pragma unroll
      for (float& sum : sums.value) sum *= factor;
    });
  }

  // Whether a step completes tiles of y.
  LLTM_JIT_HOST_DEVICE static constexpr bool finishes_tiles(int step) {
    return (step + 1 - K::kRowTiles) % K::kStepsBetween == 0;
  }
  // The first row of the tiles that step i completes.
  static LLTM_JIT_DEVICE int finished_row(int i) {
    return (i + 1 - K::kRowTiles) * (kTile / K::kDown);
  }

  // Adds a transposed pair of tiles of v D' to the tiles of y that depend on its rows.
  template <int kStep>
  LLTM_JIT_DEVICE void add(const Pair (&transposed)[4], const DownRowsOfStep<K>& band, int pair,
                           const Stage<K>& stage, StepResults<K>& results) {
    constexpr int kPhase = kStep % K::kStepsBetween;
#pragma unroll
    for (int begin = K::kUnderWay - 1; begin >= 0; --begin) {
      const int age = kPhase + begin * K::kStepsBetween;  // of these tiles of y, in steps
      if (age >= K::kRowTiles) continue;
      LLTM_JIT_UNROLLED(b, K::kBegun) {
        FloatSums sums = {};
        if (age != 0) sums = carried[kPhase == 0 ? begin - 1 : begin][b][pair];
        if (K::down().touches(kTile * age - kSlice * b, kSlice))
          sums = multiply_add(transposed, band.tiles[begin][b], sums);
        if (age == K::kRowTiles - 1) {
          stage.put(sums, b, pair, results);
        } else {
          carried[begin][b][pair] = sums;
        }
      }
    }
  }
};

}  // namespace lltm_jit
