// The forward pass of Note [Many rows]. Constants of its variant, beside those of shape.h:
//   ELEMENT      Half, BFloat16 or float, which is rounded to TF32
//   SAVES        SequenceSaves
//   CONTROLS     1 if there are control bytes
#include "rnn/sequence/many_rows/forward.cuh"
#include "rnn/sequence/variants/shape.h"

using Shape = VariantShape<ManyRowsShape>;

extern "C" __global__ void __launch_bounds__(many_rows_threads<Shape>, 1)
    many_rows_forward(const __grid_constant__ SequenceForwardArgs args) {
  run_many_rows<CELL, ELEMENT, Shape, SequenceSaves(SAVES), CONTROLS>(args);
}
