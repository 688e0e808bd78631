// A sequence step by step, for one cell and type. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16, float or double
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/by_steps/kernels.cuh"

extern "C" __global__ void sequence_forward_step(ForwardStepArgs args, Divisor hidden) {
  StepMath<CELL, ELEMENT>::run(args, hidden);
}

extern "C" __global__ void sequence_backward_step(BackwardStepArgs args, Divisor hidden) {
  StepMath<CELL, ELEMENT>::run(args, hidden);
}
