// How the blocks of a cluster exchange a step's results.
#pragma once

#include "core/memory/barrier.cuh"
#include "rnn/sequence/persistent/exchange/place.cuh"
#include "rnn/sequence/persistent/lanes/lane.cuh"

namespace lltm_jit {

// Note [Two copies and no barrier]
// Step i reads the operand of step i - 1, and writes the other one of two copies. A block p may write its part of step
// i into the copy of block q as soon as p has all of step i - 1. By then q has sent all its parts of step i - 1, and
// each group of q sends only after the last of the group's warps has read step i - 2, whose place step i takes. So a
// warp waits only for the bytes of a step, which a barrier in each block counts. This works because every warp waits
// for the whole operand: a warp that waited only for the part that it reads could run a step ahead of its own block,
// and overwrite sums that nobody has read yet.
template <typename Shape, int kArrays>
class ClusterExchange {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kTileBytes = kShape.tile_bytes();
  static constexpr int kWords = kShape.words();
  static constexpr bool kCluster = kShape.blocks > 1;
  // Each block sends its part to every block, its own included.
  static constexpr int kStepBytes =
      kArrays * kShape.tiles() * SequenceShape::kUnits * kShape.rows * kShape.bytes;

 public:
  static constexpr int kBytes = 2 * kShape.operand_bytes(kArrays);

  LLTM_JIT_DEVICE ClusterExchange(const Lane<Shape>& lane, const ExchangePlace& place)
      : buffers_(place.shared), barriers_(place.barriers) {
    const int n = kShape.row_tiles() > 1 ? lane.split : 0;
    const int tile = lane.block * kShape.groups + lane.group;
    const int first = (tile * kShape.row_tiles() + n) * kTileBytes;
    const int row = lane.row_of(0) - lane.row, unit = lane.unit_of(0) - lane.unit;
    const int element = first + (row * SequenceShape::kUnits + unit) * kShape.bytes;
    part_ = keep(kShape.rows == 2 ? element : first + lane.tile_offset());
    half_ = keep(kShape.rows == 4 ? lane.lane / 16 : 0);
    if constexpr (kShape.rows == 2) halves_ = keep(element - unit * 2);
  }

  // Zeros, and barriers. After start() all threads see what is then written into operands(-1).
  LLTM_JIT_DEVICE void clear() const {
    for (int i = threadIdx.x; i < kBytes / 16; i += blockDim.x) {
      store_shared(buffers_ + i * 16, Words<4>{});
    }
    if (kCluster && threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) init_barrier(barrier(i), 1);
      publish_barriers();
    }
    sync_block(blockDim.x);
    if (kCluster && threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) expect(i);
    }
  }
  LLTM_JIT_DEVICE void start() const {
    if constexpr (kCluster) {
      synchronize_cluster();
    } else {
      sync_block(blockDim.x);
    }
  }
  // No block ends while another may still write to it.
  LLTM_JIT_DEVICE void finish() const {
    if constexpr (kCluster) synchronize_cluster();
  }

  LLTM_JIT_DEVICE uint32_t operands(int step) const { return buffers_ + (step & 1) * (kBytes / 2); }

  // The place of this lane's pack.
  LLTM_JIT_DEVICE uint32_t own_part(int step) const {
    return operands(step) + part_ + half_ * kWords * 4;
  }

  // Waits until a step's operand is whole.
  LLTM_JIT_DEVICE void wait(int step) const {
    if constexpr (kCluster) wait_for_barrier(barrier(step), (step >> 1) & 1);
  }

  // Sends this warp's part of a step, lane by lane a pack of each array.
  LLTM_JIT_DEVICE void send(int step, const Words<kWords> (&packs)[kArrays]) const {
    LLTM_JIT_UNROLLED(a, kArrays) {
      const uint32_t array = a * kShape.operand_bytes(1);
      if constexpr (!kCluster) {
        store_shared(own_part(step) + array, packs[a]);
      } else if constexpr (kWords == 1) {
        // Two lanes have halves of the same eight bytes: each sends them to every other block.
        const Words<2> both = whole(packs[a]);
#pragma unroll
        for (int p = 0; p < kShape.blocks; p += 2) {
          send_to(p + half_, operands(step) + part_ + array, barrier(step), both);
        }
      } else {
        LLTM_JIT_UNROLLED(p, kShape.blocks) {
          send_to(p, own_part(step) + array, barrier(step), packs[a]);
        }
      }
    }
  }
  // In one block of two rows: the same in halves, the upper ones of a row before the lower ones.
  LLTM_JIT_DEVICE void send_halves(int step, int array, uint32_t halves) const {
    const uint32_t to = operands(step) + array * kShape.operand_bytes(1) + halves_;
    store_half(to, static_cast<uint16_t>(halves));
    store_half(to + SequenceShape::kUnits * 2, static_cast<uint16_t>(halves >> 16));
  }
  // Sends words to a place in a block's operand of a step.
  template <int kCount>
  LLTM_JIT_DEVICE void send_part(int step, int block, uint32_t place,
                                 const Words<kCount>& words) const {
    send_to(block, operands(step) + place, barrier(step), words);
  }
  // Called once per step, by one thread: resets the barrier that was waited for.
  LLTM_JIT_DEVICE void expect(int step) const {
    if constexpr (kCluster) arrive_and_expect(barrier(step), kStepBytes);
  }

  // Sends words to a place in a block's shared memory, and tells the barrier there.
  template <int kCount>
  static LLTM_JIT_DEVICE void send_to(int block, uint32_t to, uint32_t barrier,
                                      const Words<kCount>& w) {
    const uint32_t there = address_in(to, block), barrier_there = address_in(barrier, block);
    if constexpr (kCount == 2) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
              "r"(there),
          "r"(w.value[0]), "r"(w.value[1]), "r"(barrier_there)
          : "memory");
    } else {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
          "[%5];" ::"r"(there),
          "r"(w.value[0]), "r"(w.value[1]), "r"(w.value[2]), "r"(w.value[3]), "r"(barrier_there)
          : "memory");
    }
  }

 private:
  LLTM_JIT_DEVICE uint32_t barrier(int step) const { return barriers_ + 8 * (step & 1); }
  LLTM_JIT_DEVICE Words<2> whole(const Words<1>& pack) const {
    const uint32_t other = __shfl_xor_sync(~0u, pack.value[0], 16);
    const bool low = half_ == 0;
    return {low ? pack.value[0] : other, low ? other : pack.value[0]};
  }
  uint32_t buffers_, barriers_;
  uint32_t part_;    // where in an operand this lane's part is
  uint32_t halves_;  // of two rows: where its number's upper half is
  uint32_t half_;    // which half of its four numbers this lane has, with four rows
};

}  // namespace lltm_jit
