// Sequences of cells without a product: Note [Cells without a product] (kernels.h).
#pragma once

#include "rnn/sequence/kernels.h"

namespace at {
class Tensor;
}

namespace lltm_jit {

struct RecurrentCell;

#ifdef LLTM_JIT_CUDA
// Enqueued on the current stream, inside a KernelGuard. `like` is any tensor on the device.
void walk_forward_cuda(const SequenceForwardArgs& args, const RecurrentCell& cell,
                       const at::Tensor& like);
// Returns the gradients of the parameters, [parameters, parts, units] of state_type, whose parts are to be added up;
// undefined without any.
at::Tensor walk_backward_cuda(const SequenceBackwardArgs& args, const RecurrentCell& cell,
                              const at::Tensor& like);
#endif

}  // namespace lltm_jit
