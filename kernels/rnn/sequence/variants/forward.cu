// The forward pass of a sequence in one launch, for one cell, type and shape. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16 or float
//   SHAPE        the members of SequenceShape
//   SAVES        1 if a backward pass follows
//   CONTROLS     1 if there are control bytes
//   PADDED       1 for Note [Padded gates]
//   SEVERAL      1 for several recurrences, Note [Recurrences]
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/one_launch/forward.cuh"

namespace lltm_jit {
struct VariantShape {
  static constexpr SequenceShape kShape{SHAPE};
  static constexpr bool kPadded = PADDED, kSeveral = SEVERAL;
};
}  // namespace lltm_jit

extern "C" __global__ void __launch_bounds__(VariantShape::kShape.threads(), 1)
    sequence_forward(const __grid_constant__ SequenceForwardArgs args) {
  run_sequence<ForwardThread<CELL, ELEMENT, VariantShape, SAVES, CONTROLS>, VariantShape>(args);
}
