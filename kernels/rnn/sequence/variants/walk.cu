// A sequence of a cell without a product. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16, float or double
//   UNITS        neighbouring units of a lane: 1, or kWalkUnits where all arrays are aligned for it
//   CONTROLS     1 if there are control bytes
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/walk/backward.cuh"
#include "rnn/sequence/walk/block.cuh"
#include "rnn/sequence/walk/forward.cuh"

using Forward = WalkBlock<ForwardWalk<CELL, ELEMENT, UNITS, CONTROLS>, SequenceForwardArgs, CELL,
                          ELEMENT, UNITS>;
using Backward = WalkBlock<BackwardWalk<CELL, ELEMENT, UNITS, CONTROLS>, SequenceBackwardArgs, CELL,
                           ELEMENT, UNITS>;

extern "C" __global__ void __launch_bounds__(Forward::kShape.threads())
    walk_forward(const __grid_constant__ WalkArgs<SequenceForwardArgs> args) {
  wait_without_starting_successor();
  Forward(args).run();
}

extern "C" __global__ void __launch_bounds__(Backward::kShape.threads())
    walk_backward(const __grid_constant__ WalkArgs<SequenceBackwardArgs> args) {
  wait_without_starting_successor();
  Backward(args).run();
}
