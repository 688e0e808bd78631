// The choice of an LLTM cell's kernels. It is made here alone, from sizes, types, layouts and a
// description of the device, so that tests need no GPU. No header of torch or CUDA.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"
#include "rnn/cell_step/cpu/limits.h"

namespace lltm_jit {

// A cell, and the layout of its operands.
struct LltmProblem {
  int64_t batch_size, input_size, hidden_size;
  ElementType type;
  bool aligned;          // 16-byte accesses fit: every row starts at a multiple of 16 bytes
  bool apart;            // no row of an operand overlaps the next
  int64_t grad_columns;  // columns of [dh, dx] that the backward pass is asked for
  bool tf32 = false;     // whether the library rounds factors of products of floats to TF32
};

struct LltmGpu {
  int architecture;  // of the loaded code: 90 for 9.0
  bool wgmma;        // the code is for 9.0 alone ("9.0a")
  int shared_bytes;  // the most shared memory of a block
  int sms;
  int clusters;  // that run at once, of kClusterBlocks blocks that fill an SM; 0 if none does
};

// Who multiplies. Library: torch, with the pointwise kernels after it (or, backward, before it).
enum class LltmForwardKernel : int8_t {
  Library,
  Cpu,
  Tiny,  // cuda/gemm.cu
  Medium,
  Large,
  MediumCluster,  // cuda/cluster.cu
  WideCluster,
  LargeCluster,
};
enum class LltmBackwardKernel : int8_t {
  Library,
  Cpu,
  Medium,  // cuda/products.cu
  Large,
};

// `*_stages`: stages of k for which a tile in these two files has room in shared memory.
struct LltmPlan {
  LltmForwardKernel forward = LltmForwardKernel::Library;
  LltmBackwardKernel backward = LltmBackwardKernel::Library;
  int forward_stages = 0, backward_stages = 0;
};

LltmPlan lltm_plan(const LltmProblem& problem, const CpuFeatures& cpu);
LltmPlan lltm_plan(const LltmProblem& problem, const LltmGpu& gpu);

// The tiles that the plan counts: rows of the batch by hidden units or columns of [dh, dx].
struct LltmTile {
  int rows, columns;
};
constexpr LltmTile kTinyForward{16, 1}, kMediumForward{32, 8}, kLargeForward{64, 16};
constexpr int kClusterBlocks = 4;  // of a cluster, which share a tile
constexpr LltmTile kMediumCluster{64, 24}, kWideCluster{64, 40}, kLargeCluster{128, 40};
constexpr LltmTile kMediumBackward{32, 16}, kLargeBackward{64, 32}, kWeightGradient{64, 64};

// The most bytes of a stage, in any type, and the numbers of stages that the kernels support.
constexpr int kForwardStageBytes = 30464, kMediumBackwardStageBytes = 29184;
constexpr int kLargeBackwardStageBytes = 27648;
constexpr int kMostStages = 4, kFewestStages = 3;

}  // namespace lltm_jit
