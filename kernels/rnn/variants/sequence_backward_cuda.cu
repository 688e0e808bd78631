// The backward pass of a sequence in one launch, for one cell, type and shape. Constants of a variant:
//   CELL_HEADER  the header of the cell, as #include takes it
//   CELL         its type
//   ELEMENT      Half or BFloat16
//   BLOCKS, GROUPS, SPLITS, ROWS, SHARED_TILES  see SequenceShape
//   CONTROLS     1 if there are control bytes
#include CELL_HEADER

#include "rnn/sequence/cuda/backward.cuh"
#include "rnn/sequence/cuda/launch.cuh"

namespace {
struct Shape {
  static constexpr lltm_jit::SequenceShape kShape{BLOCKS, GROUPS, SPLITS, ROWS, SHARED_TILES};
};
}  // namespace

extern "C" cudaError_t sequence_backward(const lltm_jit::SequenceBackwardArgs& args,
                                         cudaStream_t stream) {
  using namespace lltm_jit;
  return launch_clusters<Shape>(sequence_backward_kernel<CELL, ELEMENT, Shape, CONTROLS>,
                                BackwardThread<CELL, ELEMENT, Shape, CONTROLS>::kSharedBytes, args,
                                stream);
}
