// The backward pass of Note [Many rows]. Constants of its variant, beside those of shape.h:
//   ELEMENT      Half, BFloat16 or float, which is rounded to TF32
//   CONTROLS     1 if there are control bytes
#include "rnn/sequence/many_rows/backward.cuh"
#include "rnn/sequence/variants/shape.h"

using Shape = VariantShape<ManyRowsShape>;

extern "C" __global__ void __launch_bounds__(many_rows_threads<Shape>, 1)
    many_rows_backward(const __grid_constant__ SequenceBackwardArgs args) {
  run_many_rows<CELL, ELEMENT, Shape, CONTROLS>(args);
}
