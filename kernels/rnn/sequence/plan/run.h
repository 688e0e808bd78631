// Whole sequences on the GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <tuple>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/plan/variants.h"

namespace lltm_jit {

#ifdef LLTM_JIT_CUDA
// Enqueued on the current stream, inside a KernelGuard. `like` is any tensor on the device. False: nothing was
// enqueued, because several recurrences run in one persistent kernel or not at all.
bool sequence_forward_cuda(const SequenceForwardArgs& args, const CudaCell& cell,
                           const at::Tensor& like);
bool sequence_backward_cuda(const SequenceBackwardArgs& args, const CudaCell& cell,
                            const at::Tensor& like);
SequenceGpu current_gpu();

// A function that enqueues parts of a sequence, or some of its recurrences, by the plan for all of `args`; null if
// they do not run in one persistent kernel. It returns false if the GPU has refused the launch.
template <typename Args>
using RunPart = std::function<bool(Args part)>;
RunPart<SequenceForwardArgs> sequence_parts_cuda(const SequenceForwardArgs& args,
                                                 const CudaCell& cell, const at::Tensor& like);
RunPart<SequenceBackwardArgs> sequence_parts_cuda(const SequenceBackwardArgs& args,
                                                  const CudaCell& cell, const at::Tensor& like);

// The plan's description of the current GPU: architecture, shared memory, SMs, whether there are grids, clusters,
// and the kind of plans.
std::tuple<int64_t, int64_t, int64_t, bool, int64_t, int64_t, int64_t, int64_t, int64_t>
sequence_gpu();
// For tools/fit_plan.py: from now on sequences have plans of one kind if there is one; 0 for the fastest.
void plan_sequences(int64_t kind);

// For tests: sequences run as on GPUs whose largest clusters have `planned` blocks, and which refuse to launch more
// than `launched` blocks for the same rows. Returns how many clusters of 2, 4, 8 and 16 blocks such a GPU runs at once.
std::tuple<int64_t, int64_t, int64_t, int64_t> limit_sequence_blocks(int64_t planned,
                                                                     int64_t launched);
#endif

}  // namespace lltm_jit
