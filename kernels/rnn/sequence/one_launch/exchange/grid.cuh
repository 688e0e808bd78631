// How the blocks of a whole grid exchange a step's results.
//
// Note [The whole grid]
// If the weights are more than a cluster's SMs hold, any number of blocks has them, and the operand of a step goes
// through memory, in practice through the second-level cache. Each step has its own place there, all of whose words
// are kNothing when the kernel starts. A warp that finishes writes its part. A warp that multiplies reads its k
// straight into registers, again and again until no word is kNothing any more. So there are no flags and no fences:
// a word signals its own arrival, is written once, and needs no order with other words.
// A warp waits only for its own part of k, and may therefore be one step ahead of its block. It cannot be two steps
// ahead, because it needs some other block's part of the step between, which was computed from all parts of the
// step before. So sums have two copies, and two barriers.
// Blocks wait for each other. The launch is cooperative, so that all of them run.
//
// Note [Phases]
// While a step's operand is on its way through memory, a block has nothing to multiply. With many rows, a step
// therefore has two phases, each for half of the rows: one is computed while the other one's operand is on its way.
// Each phase has its own warps that finish it. All warps meet at the barrier of a phase, where the sums of the
// other phase have been read, so that each phase needs one copy of its sums.
//
// Note [Streamed weights]
// Weights that do not fit into a block are in memory, too, in practice in the second-level cache. Each warp writes
// its own there when the kernel starts, and reads them at each step, a tile ahead of its products.
#pragma once

#include "rnn/sequence/one_launch/exchange/place.cuh"
#include "rnn/sequence/one_launch/lanes/lane.cuh"

namespace lltm_jit {

constexpr uint32_t kNothing = ~0u;  // of bytes 0xff, two halves or a float that are no number

template <int kWords>
__device__ __forceinline__ void send_words(void* target, const Words<kWords>& w) {
  uint32_t value[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) value[i] = min(w.value[i], kNothing - 1);  // as little a number
  if constexpr (kWords == 4) {
    asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target),
                 "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(target), "r"(value[0]),
                 "r"(value[1])
                 : "memory");
  } else {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(target), "r"(value[0]) : "memory");
  }
}

// The words that have arrived so far.
template <int kWords>
__device__ __forceinline__ void load_sent(const void* source, Words<kWords>& w) {
  if constexpr (kWords == 4) {
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.value[0]), "=r"(w.value[1]), "=r"(w.value[2]), "=r"(w.value[3])
                 : "l"(source)
                 : "memory");
  } else {
    static_assert(kWords == 2);
    asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
                 : "=r"(w.value[0]), "=r"(w.value[1])
                 : "l"(source)
                 : "memory");
  }
}
template <int kWords>
__device__ __forceinline__ bool is_missing(const Words<kWords>& w) {
  uint32_t most = w.value[0];
#pragma unroll
  for (int i = 1; i < kWords; ++i) most = max(most, w.value[i]);
  return most == kNothing;
}

// Has the interface of ClusterExchange, with little to do.
template <typename Shape, int kArrays>
class GridExchange {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kWords = kShape.words();
  static constexpr int kStepBytes = kShape.operand_bytes(kArrays);
  static_assert(kShape.tiles_of_warp() * (kShape.splits - 1) < kShape.tiles(),
                "each warp waits for a part of k");

 public:
  __device__ __forceinline__ GridExchange(const Lane<Shape>& lane, const ExchangePlace& place)
      : memory_(place.memory) {
    const int n = kShape.row_tiles() > 1 ? lane.split : 0;
    const int tile = lane.block * kShape.groups + lane.group;
    const int half = kShape.rows == 4 ? lane.lane / 16 : 0;
    part_ = keep((tile * kShape.row_tiles() + n) * kShape.tile_bytes() + lane.tile_offset() +
                 half * kWords * 4);
  }

  __device__ __forceinline__ void clear() const {}
  __device__ __forceinline__ void start() const {}
  __device__ __forceinline__ void finish() const {}
  __device__ __forceinline__ void wait(int) const {}
  __device__ __forceinline__ void expect(int) const {}

  __device__ __forceinline__ char* operands(int step) const {
    return memory_ + int64_t(step) * kStepBytes;
  }
  __device__ __forceinline__ void send(int step, const Words<kWords> (&packs)[kArrays]) const {
    char* target = operands(step) + part_;
#pragma unroll
    for (int a = 0; a < kArrays; ++a) send_words(target + a * kShape.operand_bytes(1), packs[a]);
  }

 private:
  char* memory_;
  uint32_t part_;  // where in an operand this lane's part is
};

}  // namespace lltm_jit
