// The sets of rows that a block has, and the work for each of them.
#pragma once

#include "core/launch/block.cuh"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/numbers/words.cuh"
#include "rnn/sequence/persistent/shape.h"

namespace lltm_jit {

// Whether there is code of a shape for this chip; the host asks check_code().
template <typename Shape>
constexpr bool kRunsHere =
#if __CUDA_ARCH__ >= 900
    true;
#else
    Shape::kShape.blocks == 1;
#endif

// Of all recurrences.
template <typename Shape>
LLTM_JIT_DEVICE int64_t all_sets(const SequenceSizes& sizes) {
  constexpr SequenceShape kShape = Shape::kShape;
  return kShape.sets(sizes.batch_size, Shape::kSeveral ? sizes.recurrences() : 1);
}

// Calls function(set) for the sets of rows that this block has: clusters have one each.
template <typename Shape, typename Function>
LLTM_JIT_DEVICE void for_sets(const SequenceSizes& sizes, const Function& function) {
  constexpr SequenceShape kShape = Shape::kShape;
  int set = blockIdx.x / kShape.blocks;
  if constexpr (!kShape.grid) {
    function(set);
  } else {
    for (; set < all_sets<Shape>(sizes); set += gridDim.x / kShape.blocks) {
      function(set);
      __syncthreads();
    }
  }
}

// Runs a kernel: Thread::run(args, shared, set) for the block's sets. The next kernel does not start early: the blocks
// of another sequence would gather, several per SM, on the SMs that this sequence leaves free.
template <typename Thread, typename Shape, typename Args>
LLTM_JIT_DEVICE void run_sequence(const Args& args) {
  if constexpr (kRunsHere<Shape>) {
    extern __shared__ __align__(128) char shared[];
    wait_without_starting_successor();
    const uint32_t address = keep(shared_address(shared));
    for_sets<Shape>(args, [&](int set) { Thread::run(args, address, set); });
  }
}

}  // namespace lltm_jit
