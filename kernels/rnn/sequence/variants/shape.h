// The cell and the shape of a kernel for all steps. Constants of its variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   SHAPE        the members of SequenceShape, or of ManyRowsShape
//   PADDED       1 for Note [Padded gates]
//   SEVERAL      1 for several recurrences, Note [Recurrences]; many rows have one
#pragma once

#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

namespace lltm_jit {
template <typename Members>
struct VariantShape {
  static constexpr Members kShape{SHAPE};
  static constexpr bool kPadded = PADDED, kSeveral = SEVERAL;
};
}  // namespace lltm_jit
