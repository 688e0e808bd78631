// The persistent kernel of the forward pass. Constants of its variant, beside those of shape.h:
//   ELEMENT      Half, BFloat16 or float
//   SAVES        SequenceSaves
//   CONTROLS     SequenceControls
#include "rnn/sequence/persistent/forward.cuh"
#include "rnn/sequence/variants/shape.h"

using Shape = VariantShape<SequenceShape>;

extern "C" __global__ void __launch_bounds__(Shape::kShape.threads(), 1)
    sequence_forward(const __grid_constant__ SequenceForwardArgs args) {
  run_sequence<
      ForwardThread<CELL, ELEMENT, Shape, SequenceSaves(SAVES), SequenceControls(CONTROLS)>, Shape>(
      args);
}
