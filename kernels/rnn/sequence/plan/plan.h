// Which kernels run a sequence on a GPU: decided here alone, from sizes and a description of the device, so
// that every decision can be tested without one. No header of torch or CUDA.
#pragma once

#include <array>
#include <tuple>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/many_rows/shape.h"
#include "rnn/sequence/persistent/shape.h"

namespace lltm_jit {

constexpr int kClusterSizes = 4;  // 2, 4, 8 and 16 blocks

// Which kinds of plans are allowed, to compare their times.
enum class PlanKind : int8_t { Any, Steps, Persistent, ManyRows };

struct SequenceGpu {
  int architecture;  // that the loaded code was made for: 90 for 9.0
  int shared_bytes;  // of shared memory, that a block may ask for
  int sms;
  bool grids;  // whether a sequence may take the whole chip, Note [The whole grid]
  // How many clusters of each size run at once, of blocks that fill an SM; 0 where none does.
  std::array<int, kClusterSizes> clusters;
  PlanKind kind = PlanKind::Any;  // if there is one
  bool many_rows = true;          // whether Note [Many rows] is allowed
};

enum class SequencePass : int8_t { Forward, Backward };

struct SequencePlan {
  bool persistent;  // else many_rows if it has blocks, else step by step
  SequenceShape shape;
  double cycles;          // of a step, as estimated
  int shared_bytes = 0;   // of a block of the shape, Note [Blocks apart]
  int64_t workspace = 0;  // bytes
  ManyRowsShape many_rows{};
};

// The members of a shape, in the order of SequenceShape{...}: nothing else lists them.
inline auto members_of(const SequenceShape& shape) {
  const auto& [a, b, c, d, e, f, g, h, i, j] = shape;
  return std::make_tuple(a, b, c, d, e, f, g, h, i, j);
}

inline auto members_of(const ManyRowsShape& shape) {
  const auto& [a, b, c, d, e, f, g, h] = shape;
  return std::make_tuple(a, b, c, d, e, f, g, h);
}

// A cell that normalises runs in a cluster, Note [Sums of a row] (persistent/exchange/row_sums.cuh), or
// step by step, Note [A block for each row].
SequencePlan sequence_plan(const SequenceSizes& sizes, SequencePass pass, const SequenceGpu& gpu);

// What the next plan knows of a GPU that has refused a plan's launch. In the end, plans are step by step.
SequenceGpu after_refusal(SequenceGpu gpu, const SequencePlan& plan);

#ifdef LLTM_JIT_CUDA
// The current device, which is asked once per thread; in gpu.cu.
cudaError_t describe_sequence_gpu(SequenceGpu* gpu);
#endif

}  // namespace lltm_jit
