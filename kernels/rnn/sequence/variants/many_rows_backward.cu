// The backward pass of Note [Many rows], for one cell, type and shape. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half or BFloat16
//   SHAPE        the members of ManyRowsShape
//   CONTROLS     1 if there are control bytes
//   PADDED       1 for Note [Padded gates]
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/many_rows/backward.cuh"

namespace lltm_jit {
struct VariantShape {
  static constexpr ManyRowsShape kShape{SHAPE};
  static constexpr bool kPadded = PADDED;
};
}  // namespace lltm_jit

extern "C" __global__ void __launch_bounds__(many_rows_threads<VariantShape>, 1)
    many_rows_backward(const __grid_constant__ SequenceBackwardArgs args) {
  run_many_rows<CELL, ELEMENT, VariantShape, CONTROLS>(args);
}
