// The sums of the warps of a group.
#pragma once

#include "rnn/sequence/persistent/lanes/lane.cuh"

namespace lltm_jit {

// Adds up a group's sums: kSums numbers for each element of h. Every warp of the group calls it. Then `values[0]`
// of a finishing warp has the totals.
template <typename Shape, int kSums>
class GroupSum {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kElements = kShape.elements(), kOthers = kShape.splits - 1;
  static constexpr int kBytes = kSums * kElements * 128, kRowTiles = kShape.phase_tiles();

 public:
  LLTM_JIT_DEVICE GroupSum(const Lane<Shape>& lane, uint32_t shared)
      : lane_(lane),
        shared_(
            keep(shared + lane.group * kRowTiles * kOthers * kBytes + lane.lane * kElements * 4)) {}

  // values[n] are those of the warp's tile of rows n, counted as in WarpWeights.
  LLTM_JIT_DEVICE void operator()(int step, int phase,
                                  float (&values)[kRowTiles][kSums][kElements]) const {
    if constexpr (kOthers > 0) {
      const int copy = (kShape.phases > 1 ? phase : step) % kShape.sum_copies();
      const uint32_t shared = shared_ + copy * kShape.sum_bytes(kSums) / kShape.sum_copies();
      LLTM_JIT_UNROLLED(n, kRowTiles) {
        const int row_tile = Lane<Shape>::row_tile(lane_.split % kRowTiles, n);
        const int finisher = phase * kRowTiles + row_tile;
        if (finisher == lane_.split) continue;
        const int slot = lane_.split < finisher ? lane_.split : lane_.split - 1;
        const uint32_t to = shared + (row_tile * kOthers + slot) * kBytes;
        LLTM_JIT_UNROLLED(i, kSums) {
          Words<kElements> w;
          LLTM_JIT_UNROLLED(e, kElements) w.value[e] = __float_as_uint(values[n][i][e]);
          store_shared(to + i * kElements * 128, w);
        }
      }
      constexpr int kThreads = 32 * kShape.splits;
      const int barrier = 1 + copy * kShape.groups + lane_.group;
      if (kShape.phases > 1 || lane_.finishes()) {
        asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
      } else {
        asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
      }
      if (!lane_.finishes(phase)) return;
      LLTM_JIT_UNROLLED2(k, kOthers, i, kSums) {
        const auto w = load_shared<kElements>(
            shared + (lane_.split % kRowTiles * kOthers + k) * kBytes + i * kElements * 128);
        LLTM_JIT_UNROLLED(e, kElements) values[0][i][e] += __uint_as_float(w.value[e]);
      }
    }
  }

 private:
  Lane<Shape> lane_;
  uint32_t shared_;
};

}  // namespace lltm_jit
