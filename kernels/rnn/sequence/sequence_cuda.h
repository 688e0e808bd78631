// Whole sequences on the GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "rnn/sequence/sequence.h"

namespace lltm_jit {

// A cell as its kernels are compiled: {"rnn.sequence", "rnn/cells/lltm.h", "lltm_jit::LltmCell"}.
// Python has declared, for each cell, the kernels <kernel>_steps, <kernel>_forward and <kernel>_backward,
// of the sources variants/sequence_<...>_cuda.cu.
struct CudaCell {
  std::string kernel, header, type;
};

#ifdef LLTM_JIT_CUDA
// Enqueued on the current stream. `like` is any tensor on the device; to be called inside a KernelGuard.
void sequence_forward_cuda(const SequenceForwardArgs& args, const CudaCell& cell,
                           const at::Tensor& like);
void sequence_backward_cuda(const SequenceBackwardArgs& args, const CudaCell& cell,
                            const at::Tensor& like);
#endif

}  // namespace lltm_jit
