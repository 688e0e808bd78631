// The persistent kernel of the backward pass. Constants of its variant, beside those of shape.h:
//   ELEMENT      Half, BFloat16 or float
//   CONTROLS     SequenceControls
//   ALL_STATES   1 if cell states of all steps have gradients
#include "rnn/sequence/persistent/backward.cuh"
#include "rnn/sequence/variants/shape.h"

using Shape = VariantShape<SequenceShape>;

extern "C" __global__ void __launch_bounds__(Shape::kShape.backward_threads(), 1)
    sequence_backward(const __grid_constant__ SequenceBackwardArgs args) {
  run_sequence<BackwardThread<CELL, ELEMENT, Shape, SequenceControls(CONTROLS), ALL_STATES>, Shape>(
      args);
}
