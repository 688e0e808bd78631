// The steps of a cell that normalises, Note [A block for each row] (steps/kernels.h). Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16, float or double
//   UNITS        units of a thread: 1 or kStepUnits
//   THREADS      of a block
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/steps/kernels.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    normalised_forward_step(ForwardStepArgs args, Divisor packs) {
  StepMath<CELL, ELEMENT, UNITS>::run(args, packs);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalised_backward_step(BackwardStepArgs args, Divisor packs) {
  StepMath<CELL, ELEMENT, UNITS>::run(args, packs);
}
