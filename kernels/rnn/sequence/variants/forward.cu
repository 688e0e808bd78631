// The forward pass of a sequence in one launch, for one cell, type and shape. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half, BFloat16 or float
//   SHAPE        the members of SequenceShape
//   SAVES        1 if a backward pass follows
//   CONTROLS     1 if there are control bytes
#include "rnn/sequence/cell.h"
using namespace lltm_jit;  // what a cell's header may use without a word
#include CELL_HEADER

#include "rnn/sequence/one_launch/forward.cuh"
#include "rnn/sequence/one_launch/launcher.cuh"

namespace lltm_jit {
struct VariantShape {
  static constexpr SequenceShape kShape{SHAPE};
};
}  // namespace lltm_jit

extern "C" cudaError_t sequence_forward(const lltm_jit::SequenceForwardArgs& args,
                                        cudaStream_t stream) {
  return launch_sets<VariantShape>(
      sequence_forward_kernel<CELL, ELEMENT, VariantShape, SAVES, CONTROLS>,
      ForwardThread<CELL, ELEMENT, VariantShape, SAVES, CONTROLS>::kSharedBytes, 1, args, stream);
}
