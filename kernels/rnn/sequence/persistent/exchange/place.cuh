// Where the blocks of a set exchange a step's results.
#pragma once

#include "rnn/sequence/persistent/sets.cuh"

namespace lltm_jit {

// The place of an exchange: shared memory and its barriers, and for a grid the memory of its operands; and memory for
// the block's streamed weights.
struct ExchangePlace {
  uint32_t shared, barriers;
  char *memory, *streamed;
};

// A set's place, with operands of so many arrays.
template <typename Shape, int kArrays, int kGates, typename Args>
LLTM_JIT_DEVICE ExchangePlace exchange_place(const Args& args, int set, uint32_t shared,
                                             uint32_t barriers) {
  constexpr SequenceShape kShape = Shape::kShape;
  char *memory = nullptr, *streamed = nullptr;
  if constexpr (kShape.grid) {
    auto* workspace = static_cast<char*>(args.workspace);
    memory = workspace + kShape.operands_bytes(args.steps, set, kArrays);
    streamed = workspace + kShape.operands_bytes(args.steps, all_sets<Shape>(args), kArrays) +
               int64_t(blockIdx.x) * kShape.streamed_bytes(kGates);
  }
  return {shared, barriers, memory, streamed};
}

}  // namespace lltm_jit
