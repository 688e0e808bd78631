// Sums over the hidden units of a row, for cells that normalise.
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/one_launch/exchange/cluster.cuh"

namespace lltm_jit {

// Note [Sums of a row]
// Each warp that finishes has 16 units of its rows. It adds up two numbers for each row, such as the gates and their
// squares around the warp's own mean, and sends both sums to every block of the cluster. There each such warp waits
// until those of all groups have come, and combines them. A step has up to kPairs of these exchanges, each in a slot of
// its own. One copy of a slot is enough: between two sends to it a warp has waited for another slot, or for h, of
// every warp that finishes, and each of these sends that after it has read the slot.
template <typename Cell, typename Shape, int kPairs,
          bool kNormalises = CellTraits<Cell>::kNormalises>
class RowSums {
 public:
  __device__ __forceinline__ RowSums(const Lane<Shape>&, int) {}
  __device__ __forceinline__ void clear() const {}
};

template <typename Cell, typename Shape, int kPairs>
class RowSums<Cell, Shape, kPairs, true> {
  static constexpr SequenceShape kShape = Shape::kShape;
  static_assert(!kShape.grid && kShape.phases == 1);
  static constexpr bool kFewRows = kShape.rows < 8;
  static constexpr int kElements = kShape.elements(), kTiles = kShape.tiles();
  static constexpr int kRows = kElements == 1 ? 1 : 2;  // of a lane, neighbours
  static constexpr int kShares = kFewRows ? 16 : 8;     // lanes with the same rows
  static constexpr int kOfLane = (kTiles + kShares - 1) / kShares;
  static constexpr int kBytes = kTiles * kShape.rows * 2 * sizeof(float);

 public:
  __device__ __forceinline__ RowSums(const Lane<Shape>& lane, int hidden)
      : lane_(lane), hidden_(hidden) {}

  // All threads see the barriers after the exchange's start().
  __device__ __forceinline__ void clear() const {
    if (threadIdx.x > 0) return;
    for (int i = 0; i < kPairs; ++i) init_barrier(barrier(i), 1);
    publish_barriers();
    for (int i = 0; i < kPairs; ++i) arrive_and_expect(barrier(i), kBytes);
  }

  // The mean of kCount numbers of each unit, and the inverse of their deviation, for each of the lane's elements.
  // kSlot: each once in a step.
  template <int kSlot, int kCount>
  __device__ __forceinline__ void moments(int step, const float (&numbers)[kElements][kCount],
                                          float (&mean)[kElements],
                                          float (&inverse)[kElements]) const {
    float sums[kRows] = {}, squares[kRows] = {};
    const float own = count_of(lane_.unit) * kCount, own_inverse = own > 0 ? 1 / own : 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (exists(e)) sums[e % kRows] += numbers[e][i];
      }
    }
    add_shares(sums);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float away = numbers[e][i] - sums[e % kRows] * own_inverse;
        if (exists(e)) squares[e % kRows] += away * away;
      }
    }
    add_shares(squares);
    float parts[kOfLane][2 * kRows], totals[kRows] = {};
    exchange(kSlot, step, sums, squares, parts);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) totals[row] += parts[i][2 * row];
    }
    add_shares(totals);
    const float all = float(hidden_) * kCount;
    float around[kRows] = {};
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int tile = share() + i * kShares;
      const float count = tile < kTiles ? count_of(tile * SequenceShape::kUnits) * kCount : 0;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float away = (count > 0 ? parts[i][2 * row] / count : 0) - totals[row] / all;
        around[row] += parts[i][2 * row + 1] + (count > 0 ? count * away * away : 0);
      }
    }
    add_shares(around);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      mean[e] = totals[e % kRows] / all;
      inverse[e] = rsqrtf(around[e % kRows] / all + float(CellTraits<Cell>::kEpsilon));
    }
  }

  // Two numbers of each element, by their sums over the rows.
  template <int kSlot>
  __device__ __forceinline__ void add(int step, float (&first)[kElements],
                                      float (&second)[kElements]) const {
    float sums[kRows] = {}, others[kRows] = {};
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (exists(e)) sums[e % kRows] += first[e], others[e % kRows] += second[e];
    }
    add_shares(sums), add_shares(others);
    float parts[kOfLane][2 * kRows];
    exchange(kSlot, step, sums, others, parts);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      sums[row] = others[row] = 0;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        sums[row] += parts[i][2 * row], others[row] += parts[i][2 * row + 1];
      }
    }
    add_shares(sums), add_shares(others);
#pragma unroll
    for (int e = 0; e < kElements; ++e) first[e] = sums[e % kRows], second[e] = others[e % kRows];
  }

 private:
  struct Slots {
    alignas(16) float numbers[kPairs][kBytes / sizeof(float)];
    uint64_t barriers[kPairs];
  };
  static_assert(sizeof(Slots) == kShape.row_sum_bytes(kPairs));
  static __device__ __forceinline__ Slots& slots() {
    __shared__ Slots memory;
    return memory;
  }
  static __device__ __forceinline__ uint32_t barrier(int slot) {
    return shared_address(&slots().barriers[slot]);
  }

  const Lane<Shape> lane_;  // a copy, or the arrays of the object that has both would be in memory
  const int hidden_;

  __device__ __forceinline__ bool exists(int e) const { return lane_.unit_of(e) < hidden_; }
  // Of the tile of units that begins here, those that exist.
  __device__ __forceinline__ float count_of(int unit) const {
    const int left = hidden_ - unit;
    return float(left < 0 ? 0 : left < SequenceShape::kUnits ? left : SequenceShape::kUnits);
  }
  // Which of the lanes with the same rows this is.
  __device__ __forceinline__ int share() const {
    return kFewRows ? lane_.lane / 4 * 2 + lane_.lane % 4 / 2 : lane_.lane / 4;
  }
  static __device__ __forceinline__ void add_shares(float (&numbers)[kRows]) {
#pragma unroll
    for (int lanes = kFewRows ? 2 : 4; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        numbers[row] += __shfl_xor_sync(~0u, numbers[row], lanes);
      }
    }
  }
  // Where a tile's sums of this lane's rows are, in floats.
  __device__ __forceinline__ int place(int tile) const {
    const int n = kShape.row_tiles() > 1 ? lane_.split : 0;
    const int row = lane_.row_of(0) - lane_.row;
    return ((tile * kShape.row_tiles() + n) * kShape.tile_rows() + row) * 2;
  }
  // Sends this warp's sums, waits for those of all, and reads a share of them. The lanes that share rows send to a
  // block each.
  __device__ __forceinline__ void exchange(int slot, int step, const float (&sums)[kRows],
                                           const float (&others)[kRows],
                                           float (&parts)[kOfLane][2 * kRows]) const {
    Words<2 * kRows> words;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      words.value[2 * row] = __float_as_uint(sums[row]);
      words.value[2 * row + 1] = __float_as_uint(others[row]);
    }
    const float* numbers = slots().numbers[slot];
    const uint32_t to = shared_address(numbers + place(lane_.block * kShape.groups + lane_.group));
    for (int block = share(); block < kShape.blocks; block += kShares) {
      ClusterExchange<Shape, 1>::send_to(block, to, barrier(slot), words);
    }
    wait_for_barrier(barrier(slot), step & 1);
    if (threadIdx.x == 0) arrive_and_expect(barrier(slot), kBytes);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int tile = share() + i * kShares;
      const float* part = numbers + place(tile < kTiles ? tile : 0);
#pragma unroll
      for (int k = 0; k < 2 * kRows; ++k) parts[i][k] = tile < kTiles ? part[k] : 0;
    }
  }
};

}  // namespace lltm_jit
