// A sequence step by step, for one cell and type. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16, float or double
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/steps/kernels.cuh"

// In packs of units if the arrays allow it.
template <typename Args>
LLTM_JIT_DEVICE void run_one_step(const Args& args, const Divisor& packs) {
  if (args.units == kStepUnits) {
    StepMath<CELL, ELEMENT, kStepUnits>::run(args, packs);
  } else {
    StepMath<CELL, ELEMENT, 1>::run(args, packs);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sequence_forward_step(ForwardStepArgs args, Divisor packs) {
  run_one_step(args, packs);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sequence_backward_step(BackwardStepArgs args, Divisor packs) {
  run_one_step(args, packs);
}
