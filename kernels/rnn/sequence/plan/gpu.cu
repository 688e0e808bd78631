// What sequence_plan() wants to know of a GPU.
#include "core/launch/launch.cuh"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {
namespace {

// With all shared memory that a block may have, one of its blocks fills an SM as far as others of this kind are
// concerned, so that clusters which run are clusters that any kernel can have.
__global__ void probe_kernel() {}

cudaError_t ask_gpu(int device, SequenceGpu* gpu) {
  int cooperative = 0;
  LLTM_JIT_TRY(
      cudaDeviceGetAttribute(&gpu->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&gpu->sms, cudaDevAttrMultiProcessorCount, device));
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  gpu->grids = cooperative != 0;
  LLTM_JIT_TRY(code_architecture(probe_kernel, &gpu->architecture));
  LLTM_JIT_TRY(allow_all_shared_memory(probe_kernel));
  for (int i = 0; i < kClusterSizes; ++i) {
    const bool exist = gpu->architecture >= 90;
    gpu->clusters[i] =
        exist ? clusters_at_once(probe_kernel, 2 << i, /*threads=*/32, gpu->shared_bytes) : 0;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t describe_sequence_gpu(SequenceGpu* gpu) { return ask_once(ask_gpu, gpu); }

}  // namespace lltm_jit
