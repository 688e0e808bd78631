// Which kernels run a sequence on a GPU: decided here alone, from sizes and a description of the device, so
// that every decision can be tested without one. No header of torch or CUDA.
#pragma once

#include "rnn/sequence/cuda/shape.h"
#include "rnn/sequence/sequence.h"

namespace lltm_jit {

struct SequenceGpu {
  int architecture;  // 90 for 9.0
  int shared_bytes;  // of shared memory, that a block may ask for
  int sms;
  bool grids;  // whether a sequence may take the whole chip, Note [The whole grid]
};

enum class SequencePass : int8_t { Forward, Backward };

struct SequencePlan {
  bool one_launch;  // or step by step
  SequenceShape shape;
  double cycles;          // of a step, as estimated
  int64_t workspace = 0;  // bytes
};

// aligned: rows of all arrays start at multiples of four elements.
SequencePlan sequence_plan(const SequenceSizes& sizes, bool aligned, SequencePass pass,
                           const SequenceGpu& gpu);

}  // namespace lltm_jit
