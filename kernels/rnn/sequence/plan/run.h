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
// Enqueued on the current stream. `like` is any tensor on the device; to be called inside a KernelGuard. False:
// nothing is, since several recurrences run in one launch or not at all.
bool sequence_forward_cuda(const SequenceForwardArgs& args, const CudaCell& cell,
                           const at::Tensor& like);
bool sequence_backward_cuda(const SequenceBackwardArgs& args, const CudaCell& cell,
                            const at::Tensor& like);
// Whether a sequence runs in one launch whose blocks leave many SMs idle, and the gradient of its weights has much to do.
bool sequence_leaves_room(const SequenceBackwardArgs& args);

// What enqueues parts of a sequence, or some of the recurrences of one, by the plan for all of `args`; null where they do
// not run in one launch. False: the GPU has refused the launch.
template <typename Args>
using RunPart = std::function<bool(Args part)>;
RunPart<SequenceForwardArgs> sequence_parts_cuda(const SequenceForwardArgs& args,
                                                 const CudaCell& cell, const at::Tensor& like);
RunPart<SequenceBackwardArgs> sequence_parts_cuda(const SequenceBackwardArgs& args,
                                                  const CudaCell& cell, const at::Tensor& like);

// What the plan takes of the current GPU: its architecture, shared memory, SMs, whether there are grids, clusters, and
// the kind of plans.
std::tuple<int64_t, int64_t, int64_t, bool, int64_t, int64_t, int64_t, int64_t, int64_t>
sequence_gpu();
// For tools/fit_plan.py: from now on sequences have plans of one kind, as far as there is one; 0 for the quickest.
void plan_sequences(int64_t kind);

// For tests: sequences run as on GPUs that have no larger clusters than of `planned` blocks, and that refuse to
// launch more than `launched` blocks for the same rows. Gives how many clusters of 2, 4, 8 and 16 blocks such a GPU
// runs at once.
std::tuple<int64_t, int64_t, int64_t, int64_t> limit_sequence_blocks(int64_t planned,
                                                                     int64_t launched);
#endif

}  // namespace lltm_jit
