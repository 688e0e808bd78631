// How the blocks of a whole grid exchange a step's results.
//
// Note [The whole grid]
// If a cluster's SMs cannot hold the weights, any number of blocks shares them, and the operand of a step goes through
// memory, in practice through the second-level cache. Each step has a place there, whose words begin as kNothing. A
// warp that finishes writes its part. A warp that multiplies reads its k straight into registers, again and again until
// no word is kNothing. So a step has no flags and no fences: a word signals its own arrival, and needs no order with
// other words. A warp waits only for its own part of k, and may therefore be one step ahead of its block. It cannot be
// two steps ahead, because it needs some other block's part of the step between, which was computed from all parts of
// the step before. So sums have two copies, and two barriers. Blocks wait for each other. The launch is cooperative, so
// that all of them run.
//
// Note [Places in turn]
// Steps s and s + kPlaces have the same place, so that memory does not grow with the steps. The operand of step s is
// written in step s, and read in step s + 1, though loads may begin at the end of step s. The lane that wrote a word
// resets it to kNothing when it writes its word of step s + 1 + 2 kTurn. Before the reset all readers must have read
// the word, and they must see the reset before they read the place again, for step s + kPlaces. In the steps that are
// multiples of kTurn each block turns: a barrier, a fence by every thread, and a barrier. What a block did before it
// turned at step t comes before its words of step t; and these, which every block reads in step t + 1, come before what
// that block does after its next turn, at t + kTurn. So all blocks know in step t + kTurn what any block did before its
// turn at t.
//   Read: a block has read the words of step s before it turns at some t <= s + 1 + kTurn, so that they are reset after
//   the turn at t + kTurn <= s + 1 + 2 kTurn.
//   Reset: that is before a turn at some t <= s + 1 + 3 kTurn, and so known from step s + 1 + 4 kTurn on. Loads for step
//   s + kPlaces begin in that step, which is no earlier.
// A reader then finds the reset or the new word, as the same lane wrote both, one after the other. Sequences with a
// place for every step need no turns.
//
// Note [Phases]
// While a step's operand is on its way through memory, a block has nothing to multiply. With many rows, a step
// therefore has two phases, each for half of the rows: one phase is computed while the other phase's operand is on its
// way. Each phase has its own warps that finish it. All warps meet at the barrier of a phase, where the sums of the
// other phase have been read, so that each phase needs one copy of its sums.
//
// Note [Streamed weights]
// Weights that do not fit into a block are in memory, too, in practice in the second-level cache. Each warp writes its
// own weights there when the kernel starts, and reads them at each step, one tile ahead of its products.
#pragma once

#include "rnn/sequence/persistent/exchange/cluster.cuh"

namespace lltm_jit {

constexpr uint32_t kNothing = ~0u;  // of bytes 0xff, two halves or a float that are no number

template <int kWords>
LLTM_JIT_DEVICE void store_sent(void* target, const Words<kWords>& w) {
  LLTM_JIT_STORE_WORDS("st.relaxed.gpu.global", w, "l", target);
}
template <int kWords>
LLTM_JIT_DEVICE void send_words(void* target, Words<kWords> w) {
  LLTM_JIT_UNROLLED(i, kWords) w.value[i] = min(w.value[i], kNothing - 1);  // as little a number
  store_sent(target, w);
}
template <int kWords>
LLTM_JIT_DEVICE void reset_words(void* target) {
  Words<kWords> w;
  LLTM_JIT_UNROLLED(i, kWords) w.value[i] = kNothing;
  store_sent(target, w);
}

// The words that have arrived so far.
template <int kWords>
LLTM_JIT_DEVICE void load_sent(const void* source, Words<kWords>& w) {
  LLTM_JIT_LOAD_WORDS("ld.relaxed.gpu.global", w, "l", source);
}
template <int kWords>
LLTM_JIT_DEVICE bool is_missing(const Words<kWords>& w) {
  uint32_t most = w.value[0];
  LLTM_JIT_UNROLLED_FROM(i, 1, kWords) most = max(most, w.value[i]);
  return most == kNothing;
}

// Has the interface of ClusterExchange, with little to do.
template <typename Shape, int kArrays>
class GridExchange {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kWords = kShape.words();
  static constexpr int kStepBytes = kShape.operand_bytes(kArrays), kPlaces = kShape.kPlaces;
  static constexpr int kTurn = (kPlaces - 1) / 4;  // steps, Note [Places in turn]
  static_assert(kShape.tiles_of_warp() * (kShape.splits - 1) < kShape.tiles(),
                "each warp waits for a part of k");

 public:
  LLTM_JIT_DEVICE GridExchange(const Lane<Shape>& lane, const ExchangePlace& place)
      : memory_(place.memory) {
    const int n = kShape.row_tiles() > 1 ? lane.split : 0;
    const int tile = lane.block * kShape.groups + lane.group;
    const int half = kShape.rows == 4 ? lane.lane / 16 : 0;
    part_ = keep((tile * kShape.row_tiles() + n) * kShape.tile_bytes() + lane.tile_offset() +
                 half * kWords * 4);
  }

  LLTM_JIT_DEVICE void clear() const {}
  LLTM_JIT_DEVICE void start() const {}
  LLTM_JIT_DEVICE void finish() const {}
  LLTM_JIT_DEVICE void wait(int) const {}
  LLTM_JIT_DEVICE void expect(int) const {}

  // All threads call it before each step.
  LLTM_JIT_DEVICE void turn(int step, int steps) const {
    if (steps < kPlaces || step % kTurn != 0) return;
    __syncthreads();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncthreads();
  }

  // From step -1 on.
  LLTM_JIT_DEVICE char* operands(int step) const {
    return memory_ + int64_t((step + 1) % unsigned(kPlaces)) * kStepBytes;
  }
  LLTM_JIT_DEVICE void send(int step, const Words<kWords> (&packs)[kArrays]) const {
    char* target = operands(step) + part_;
    LLTM_JIT_UNROLLED(a, kArrays) send_words(target + a * kShape.operand_bytes(1), packs[a]);
    if (step < 2 * kTurn) return;
    target = operands(step - 1 - 2 * kTurn) + part_;
    LLTM_JIT_UNROLLED(a, kArrays) reset_words<kWords>(target + a * kShape.operand_bytes(1));
  }

 private:
  char* memory_;
  uint32_t part_;  // where in an operand this lane's part is
};

template <typename Shape, int kArrays>
using Exchange = std::conditional_t<Shape::kShape.grid, GridExchange<Shape, kArrays>,
                                    ClusterExchange<Shape, kArrays>>;

}  // namespace lltm_jit
