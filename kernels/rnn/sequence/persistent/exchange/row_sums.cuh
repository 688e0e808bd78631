// Sums over the hidden units of a row, for cells that normalise.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/persistent/exchange/cluster.cuh"

namespace lltm_jit {

// Note [Sums of a row]
// Each warp that finishes has 16 units of its rows. It computes two numbers for each row, such as the mean and the
// squares around it, and sends both to every block of the cluster. There each such warp waits for the numbers of all
// groups, and combines them. A step has up to kPairs of these exchanges, each in a slot of its own. One copy of a slot
// is enough: between two sends to a slot, a warp has waited for another slot, or for h, from every warp that finishes,
// and each of these warps sends that only after it has read the slot.
template <typename Cell, typename Shape, int kPairs,
          bool kNormalises = CellTraits<Cell>::kNormalises>
class RowSums {
 public:
  static constexpr int kBytes = 0;
  LLTM_JIT_DEVICE RowSums(const Lane<Shape>&, int, uint32_t) {}
  LLTM_JIT_DEVICE void clear() const {}
};

template <typename Cell, typename Shape, int kPairs>
class RowSums<Cell, Shape, kPairs, true> {
  static constexpr SequenceShape kShape = Shape::kShape;
  // st.async is an illegal instruction outside a cluster.
  static_assert(kShape.blocks > 1 && !kShape.grid && kShape.phases == 1);
  static constexpr bool kFewRows = kShape.rows < 8;
  static constexpr int kElements = kShape.elements(), kTiles = kShape.tiles();
  static constexpr int kRows = 2;                  // of a lane, neighbours
  static constexpr int kLanes = kFewRows ? 2 : 4;  // neighbours, with all rows between them
  static constexpr int kShares = 32 / kLanes;      // lanes with the same rows
  static constexpr int kSlotBytes = kShape.row_sum_bytes(1) - kShape.kRowSumBarrier;
  using Numbers = float[kRows];

 public:
  static constexpr int kBytes = kShape.row_sum_bytes(kPairs);

  LLTM_JIT_DEVICE RowSums(const Lane<Shape>& lane, int hidden, uint32_t shared)
      : lane_(lane),
        hidden_(hidden),
        shared_(shared),
        inverse_(1 / float(hidden)),
        own_inverse_(lane.unit < hidden ? 1 / units_from(lane.unit) : 0) {}

  // All threads see the barriers after the exchange's start().
  LLTM_JIT_DEVICE void clear() const {
    if (threadIdx.x > 0) return;
    for (int i = 0; i < kPairs; ++i) init_barrier(barrier(i), 1);
    publish_barriers();
    for (int i = 0; i < kPairs; ++i) arrive_and_expect(barrier(i), kSlotBytes);
  }

  // The mean of kCount numbers of each unit, and the inverse of their deviation, for each of the lane's elements.
  // Squares are relative to one of a warp's numbers, or to one of the warps' means, so that large numbers lose no
  // digits. A step uses each kSlot once.
  template <int kSlot, int kCount>
  LLTM_JIT_DEVICE void moments(int step, const float (&numbers)[kElements][kCount],
                               float (&mean)[kElements], float (&inverse)[kElements]) const {
    Numbers one, sums = {}, squares = {};
    LLTM_JIT_UNROLLED(row, kRows) one[row] = __shfl_sync(~0u, numbers[row][0], lane_.lane % kLanes);
    LLTM_JIT_UNROLLED2(e, kElements, i, kCount) {
      const float away = exists(e) ? numbers[e][i] - one[e % kRows] : 0;
      sums[e % kRows] += away, squares[e % kRows] += away * away;
    }
    add_shares(sums, squares);
    LLTM_JIT_UNROLLED(row, kRows) {
      const float away = sums[row] * own_inverse_ * (1.0f / kCount);
      squares[row] -= sums[row] * away;
      sums[row] = own_inverse_ > 0 ? one[row] + away : 0;
    }
    exchange(kSlot, step, sums, squares);
    const auto first = part(kSlot, 0);
    Numbers totals = {}, around = {};
    for_tiles([&](int tile) {
      const auto of_tile = part(kSlot, tile);
      const float count = units_from(tile * SequenceShape::kUnits) * kCount;
      LLTM_JIT_UNROLLED(row, kRows) {
        const float away = of_tile.value[2 * row] - first.value[2 * row];
        totals[row] += count * away;
        around[row] += of_tile.value[2 * row + 1] + count * away * away;
      }
    });
    add_shares(totals, around);
    LLTM_JIT_UNROLLED(e, kElements) {
      const float away = totals[e % kRows] * inverse_ * (1.0f / kCount);
      const float variance = around[e % kRows] * inverse_ * (1.0f / kCount) - away * away;
      mean[e] = first.value[2 * (e % kRows)] + away;
      inverse[e] = rsqrtf(fmaxf(variance, 0) + float(CellTraits<Cell>::kEpsilon));
    }
  }

  // The means over kCount numbers of each unit of a row, of which each element has its sums, twice.
  template <int kSlot, int kCount>
  LLTM_JIT_DEVICE void means(int step, float (&first)[kElements],
                             float (&second)[kElements]) const {
    Numbers sums = {}, others = {};
    LLTM_JIT_UNROLLED(e, kElements) {
      if (exists(e)) sums[e % kRows] += first[e], others[e % kRows] += second[e];
    }
    add_shares(sums, others);
    exchange(kSlot, step, sums, others);
    LLTM_JIT_UNROLLED(row, kRows) sums[row] = others[row] = 0;
    for_tiles([&](int tile) {
      const auto of_tile = part(kSlot, tile);
      LLTM_JIT_UNROLLED(row, kRows) {
        sums[row] += of_tile.value[2 * row], others[row] += of_tile.value[2 * row + 1];
      }
    });
    add_shares(sums, others);
    LLTM_JIT_UNROLLED(e, kElements) {
      first[e] = sums[e % kRows] * inverse_ * (1.0f / kCount);
      second[e] = others[e % kRows] * inverse_ * (1.0f / kCount);
    }
  }

 private:
  struct Part {
    float value[2 * kRows];
  };

  const Lane<Shape> lane_;  // a copy, or the arrays of the object that has both would be in memory
  const int hidden_;
  const uint32_t shared_;
  const float inverse_, own_inverse_;  // of the units of a row, and of those that this warp has

  LLTM_JIT_DEVICE uint32_t barrier(int slot) const {
    return shared_ + kPairs * kSlotBytes + slot * kShape.kRowSumBarrier;
  }
  LLTM_JIT_DEVICE bool exists(int e) const { return lane_.unit_of(e) < hidden_; }
  // How many units exist of the tile that begins with this unit.
  LLTM_JIT_DEVICE float units_from(int unit) const {
    return float(min(max(hidden_ - unit, 0), SequenceShape::kUnits));
  }
  // Which of the lanes with the same rows this is.
  LLTM_JIT_DEVICE int share() const {
    return kFewRows ? lane_.lane / 4 * 2 + lane_.lane % 4 / 2 : lane_.lane / 4;
  }
  // The tiles that this lane adds up.
  template <typename Function>
  LLTM_JIT_DEVICE void for_tiles(const Function& function) const {
#pragma unroll
    for (int first = 0; first < kTiles; first += kShares) {
      if (first + kShares <= kTiles || first + share() < kTiles) function(first + share());
    }
  }
  static LLTM_JIT_DEVICE void add_shares(Numbers& some, Numbers& others) {
#pragma unroll
    for (int lanes = kLanes; lanes < 32; lanes *= 2) {
      LLTM_JIT_UNROLLED(row, kRows) {
        some[row] += __shfl_xor_sync(~0u, some[row], lanes);
        others[row] += __shfl_xor_sync(~0u, others[row], lanes);
      }
    }
  }
  // Where a tile's numbers of this lane's rows are.
  LLTM_JIT_DEVICE uint32_t place(int slot, int tile) const {
    const int n = kShape.row_tiles() > 1 ? lane_.split : 0;
    const int row = lane_.row_of(0) - lane_.row;
    const int first = (tile * kShape.row_tiles() + n) * kShape.tile_rows() + row;
    return shared_ + slot * kSlotBytes + first * 2 * int(sizeof(float));
  }
  LLTM_JIT_DEVICE Part part(int slot, int tile) const {
    const auto words = load_shared<2 * kRows>(place(slot, tile));
    Part part;
    LLTM_JIT_UNROLLED(i, 2 * kRows) part.value[i] = __uint_as_float(words.value[i]);
    return part;
  }
  // Sends this warp's numbers, and waits for those of all. The lanes that share rows send to a block each.
  LLTM_JIT_DEVICE void exchange(int slot, int step, const Numbers& some,
                                const Numbers& others) const {
    Words<2 * kRows> words;
    LLTM_JIT_UNROLLED(row, kRows) {
      words.value[2 * row] = __float_as_uint(some[row]);
      words.value[2 * row + 1] = __float_as_uint(others[row]);
    }
    const uint32_t to = place(slot, lane_.block * kShape.groups + lane_.group);
    for (int block = share(); block < kShape.blocks; block += kShares) {
      ClusterExchange<Shape, 1>::send_to(block, to, barrier(slot), words);
    }
    wait_for_barrier(barrier(slot), step & 1);
    if (threadIdx.x == 0) arrive_and_expect(barrier(slot), kSlotBytes);
    __syncwarp();
  }
};

}  // namespace lltm_jit
