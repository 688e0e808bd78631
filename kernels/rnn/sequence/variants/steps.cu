// A sequence step by step, for one cell and type. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16, float or double
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/by_steps/kernels.cuh"

extern "C" cudaError_t sequence_forward_step(const lltm_jit::ForwardStepArgs& args,
                                             cudaStream_t stream) {
  return launch_step(forward_step_kernel<CELL, ELEMENT>, args, stream);
}

extern "C" cudaError_t sequence_backward_step(const lltm_jit::BackwardStepArgs& args,
                                              cudaStream_t stream) {
  return launch_step(backward_step_kernel<CELL, ELEMENT>, args, stream);
}
