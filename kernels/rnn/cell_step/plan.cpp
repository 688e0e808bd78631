#include "rnn/cell_step/plan.h"

namespace lltm_jit {
namespace {

int64_t width_of(const LltmProblem& problem) { return problem.hidden_size + problem.input_size; }

int64_t work_of(const LltmProblem& problem) {
  return problem.batch_size * problem.hidden_size * width_of(problem);
}

bool is_16_bit(ElementType type) {
  return type == ElementType::Half || type == ElementType::BFloat16;
}

// Note [Own products or the library's]
// Up to these amounts of work, batch_size * hidden_size * width, the kernels with their own products are
// faster than the library's GEMM with the passes around it; see README.md. (On a CPU: cpu/limits.h.)
// tools/time_lltm_kernels.py -c times each kernel at any size. The figures below are from an H200.
constexpr int64_t kMediumWork = 64 * 512 * 768, kLargeWork = 128 * 1024 * 2048;
// For float, whose products take long on tensor cores: Note [Tiny cells] in cuda/gemm.cu.
constexpr int64_t kTinyWork = 16 * 256 * 320;
// Unaligned rows are copied one element at a time.
constexpr int64_t kMostUnaligned = 2 * kMediumWork;
// The weights' gradient is a sum over the batch, which its kernel does not divide among blocks.
constexpr int64_t kMostBackwardRows = 512;
constexpr int64_t kMostClusterWidth = 4096;  // the widest that was measured

// Measured on an H200. One launch, and enough tiles for every SM, win until the library's larger tiles do. That
// happens sooner in 16 bits, double and TF32 than in float, which the library multiplies without tensor cores.
// By their data sheets, chips whose blocks have less than about 160 KB (8.6, 8.9, 12.0) multiply TF32 no faster
// than FP32. There, the three products of a split float pay only while latency counts.
LltmLimits limits(const LltmProblem& problem, const LltmGpu& gpu) {
  const ElementType type = problem.type;
  constexpr int kSharedBytesBesideFastTf32 = 160 * 1024;
  if (is_16_bit(type)) return {2 * kMediumWork, kLargeWork};
  if (gpu.shared_bytes >= kSharedBytesBesideFastTf32) {
    if (type == ElementType::Float && !problem.tf32) return {2 * kLargeWork, 2 * kLargeWork};
    return {kLargeWork / 2, kLargeWork / 2};
  }
  return {2 * kMediumWork, 2 * kMediumWork};
}

// Scales a number of tiles that was chosen on an H200 (132 SMs) to this chip.
int64_t tiles_here(int64_t tiles, const LltmGpu& gpu) { return tiles * gpu.sms / 132; }

int64_t tiles(int64_t rows, int64_t columns, LltmTile tile) {
  return ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns);
}
int64_t forward_tiles(const LltmProblem& problem, LltmTile tile) {
  return tiles(problem.batch_size, problem.hidden_size, tile);
}

bool has_own_kernels(const LltmGpu& gpu) {
  constexpr int kLeastArchitecture = 80;  // mma.sync for every type
  return gpu.architecture >= kLeastArchitecture &&
         gpu.shared_bytes >= kFewestStages * kForwardStageBytes;
}

// The most stages that leave room for `blocks` blocks on an SM, or the fewest stages.
int stages_for(int stage_bytes, int blocks, const LltmGpu& gpu) {
  // An SM has 1 KB more than a block may use, and reserves as much for each block.
  constexpr int kReserved = 1024;
  const int wanted = blocks * (kMostStages * stage_bytes + kReserved);
  return wanted <= gpu.shared_bytes + kReserved ? kMostStages : kFewestStages;
}

// A single row of floats only reads the weights. The library's matrix-vector product does so at the
// memory's speed: at 1, 1024, 1024 ours takes 1.07 times as long forward and 0.88 times as long backward.
constexpr int64_t kMostOfOneRowForward = 512 * 768, kMostOfOneRowBackward = 1024 * 2048;

bool is_row_for_the_library(const LltmProblem& problem, int64_t most) {
  return problem.batch_size == 1 && problem.type == ElementType::Float && work_of(problem) > most;
}

bool own_products(const LltmProblem& problem, int64_t limit) {
  const int64_t work = work_of(problem);
  if (work > limit) return false;
  return problem.aligned || (!is_16_bit(problem.type) && work <= kMostUnaligned);
}

LltmForwardKernel cluster_kernel(const LltmProblem& problem, const LltmGpu& gpu) {
  using Kernel = LltmForwardKernel;
  // The copy engine needs rows that are aligned and do not overlap.
  if (!gpu.wgmma || !is_16_bit(problem.type) || !problem.aligned || !problem.apart ||
      width_of(problem) > kMostClusterWidth) {
    return Kernel::Library;
  }
  // A wave of cuda/gemm.cu's smallest tiles is faster if it leaves half of the chip idle, or has
  // few rows.
  const int64_t small = forward_tiles(problem, kMediumForward);
  if (small <= tiles_here(64, gpu) || (problem.batch_size <= 16 && small <= gpu.sms)) {
    return Kernel::Library;
  }
  // Takes the first kernel whose tiles all run at once.
  if (forward_tiles(problem, kMediumCluster) <= gpu.clusters) return Kernel::MediumCluster;
  if (forward_tiles(problem, kWideCluster) <= gpu.clusters) return Kernel::WideCluster;
  if (forward_tiles(problem, kLargeCluster) <= gpu.clusters) return Kernel::LargeCluster;
  return Kernel::Library;
}

// Note [Shapes of the tiles]
// The plan takes the largest tile of each kind that still gives most SMs one: traffic from L2 limits
// large tiles, latency small ones. All tiles have eight warps. A forward tile takes more than half of
// an SM's shared memory. Otherwise a block that begins while the kernel before it ends would join
// another one on its SM, and leave a second SM idle. Backward, two blocks share an SM. Only the medium
// tile may take its shared memory alone: it is for cells with at most one tile per SM. Chips with less
// shared memory than an H100 have the same tiles, with fewer stages of k in flight.
LltmForwardKernel forward_kernel(const LltmProblem& problem, const LltmGpu& gpu) {
  using Kernel = LltmForwardKernel;
  if (const Kernel kernel = cluster_kernel(problem, gpu); kernel != Kernel::Library) return kernel;
  if (!own_products(problem, limits(problem, gpu).cell) ||
      is_row_for_the_library(problem, kMostOfOneRowForward)) {
    return Kernel::Library;
  }
  if (problem.aligned && problem.type != ElementType::Double &&
      forward_tiles(problem, kLargeForward) >= tiles_here(96, gpu)) {
    return Kernel::Large;
  }
  const bool tiny = problem.type == ElementType::Float && work_of(problem) <= kTinyWork;
  return tiny ? Kernel::Tiny : Kernel::Medium;
}

LltmBackwardKernel backward_kernel(const LltmProblem& problem, const LltmGpu& gpu) {
  using Kernel = LltmBackwardKernel;
  if (problem.batch_size > kMostBackwardRows ||
      !own_products(problem, limits(problem, gpu).products) ||
      is_row_for_the_library(problem, kMostOfOneRowBackward)) {
    return Kernel::Library;
  }
  const int64_t medium = tiles(problem.batch_size, problem.grad_columns, kMediumBackward);
  return problem.aligned && medium > gpu.sms ? Kernel::Large : Kernel::Medium;
}

// With three stages, two blocks share an SM. That pays if the weights' gradient has more tiles than
// there are SMs (in half 1.2 times at 64, 256, 512 and 1.5 times at 16, 1024, 1024), except in
// double, for which one block keeps the tensor cores busy.
int medium_backward_stages(const LltmProblem& problem, const LltmGpu& gpu) {
  const int64_t weight_tiles = tiles(3 * problem.hidden_size, width_of(problem), kWeightGradient);
  if (weight_tiles > gpu.sms && problem.type != ElementType::Double) return kFewestStages;
  return stages_for(kMediumBackwardStageBytes, 1, gpu);
}

}  // namespace

LltmPlan lltm_plan(const LltmProblem& problem, const CpuFeatures& cpu) {
  const int64_t work = work_of(problem);
  const int64_t weights = problem.hidden_size * width_of(problem);
  const auto [cell, products] = lltm_cpu_limits(problem.type, weights, cpu);
  LltmPlan plan;
  if (work > 0 && work <= cell) plan.forward = LltmForwardKernel::Cpu;
  if (work > 0 && work <= products) plan.backward = LltmBackwardKernel::Cpu;
  return plan;
}

LltmPlan lltm_plan(const LltmProblem& problem, const LltmGpu& gpu) {
  LltmPlan plan;
  if (!has_own_kernels(gpu) || work_of(problem) == 0) return plan;
  plan.forward = forward_kernel(problem, gpu);
  plan.forward_stages = stages_for(kForwardStageBytes, 1, gpu);
  plan.backward = backward_kernel(problem, gpu);
  plan.backward_stages = plan.backward == LltmBackwardKernel::Large
                             ? stages_for(kLargeBackwardStageBytes, 2, gpu)
                             : medium_backward_stages(problem, gpu);
  return plan;
}

}  // namespace lltm_jit
