// Sequences of cells without a product on a GPU.
#include "core/launch/api.h"

#ifdef LLTM_JIT_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "core/launch/device.h"
#include "core/launch/driver.h"
#include "rnn/sequence/plan/aligned.h"
#include "rnn/sequence/plan/variants.h"
#include "rnn/sequence/recurrent_cell.h"
#include "rnn/sequence/walk/kernels.h"
#include "rnn/sequence/walk/run.h"

namespace lltm_jit {
namespace {

template <typename Args>
const void* walk_variant(const Args& args, int units, const RecurrentCell& cell) {
  static VariantTable<const void, std::string, std::string, ElementType, int, bool> table;
  const bool controls = args.control != nullptr;
  return table.get({cell.cuda.kernel, cell.cuda.type, args.type, units, controls}, [&] {
    return walk_request(args, std::is_same_v<Args, SequenceForwardArgs>, units, controls,
                        cell.cuda);
  });
}

// So many that few rows, too, fill the chip.
int64_t pieces_of(const SequenceSizes& sizes, int64_t blocks, const WalkShape& shape) {
  constexpr int64_t kFewestTiles = 4;  // of a piece
  int device = 0, sms = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const int64_t most = sizes.steps / (kFewestTiles * shape.tile());
  return std::max<int64_t>(1, std::min(most, sms / blocks));
}

// prepare(args) allocates what depends on the number of pieces.
template <typename Sequence, typename Prepare>
void walk(const Sequence& sequence, const RecurrentCell& cell, const at::Tensor& like,
          const Prepare& prepare) {
  const SequenceSizes& sizes = sequence;
  const int units = arrays_of(sequence, kWalkUnits).aligned ? kWalkUnits : 1;
  const int bytes = sizes.state_type == ElementType::Double ? 8 : 4;
  const WalkShape shape = walk_shape(&sequence, cell.linear, sizes.gates, sizes.states, bytes);
  const int64_t blocks = sizes.batch_size * ceil_div(sizes.hidden_size, int64_t(32 * units));
  WalkArgs<Sequence> args{sequence};
  if (cell.linear) args.pieces = pieces_of(sizes, blocks, shape);
  const int64_t tiles = ceil_div(sizes.steps, int64_t(shape.tile()));
  args.piece_steps = ceil_div(tiles, args.pieces) * shape.tile();
  args.pieces = ceil_div(sizes.steps, args.piece_steps);
  prepare(args);
  at::Tensor maps, cuts;
  if (args.pieces > 1) {
    const int64_t numbers = sizes.states * (sizes.states + 1);
    maps = empty({args.pieces * numbers, sizes.batch_size, sizes.hidden_size}, like,
                 bytes == 8 ? at::kDouble : at::kFloat);
    cuts = empty({args.pieces, sizes.batch_size}, like, at::kByte);
    args.maps = maps.mutable_data_ptr();
    args.cuts = static_cast<uint8_t*>(cuts.mutable_data_ptr());
  }
  const void* kernel = walk_variant(sequence, units, cell);
  const Driver* driver = nullptr;
  ReadyKernel ready;
  C10_CUDA_CHECK(find_driver(&driver));
  C10_CUDA_CHECK(find_ready(*driver, kernel, nullptr, &ready));
  const auto stream = c10::cuda::getCurrentCUDAStream();
  void* arguments[] = {&args};
  for (const bool only_maps : {true, false}) {
    if (only_maps && args.pieces == 1) continue;
    args.only_maps = only_maps;
    C10_CUDA_CHECK(launch_ready(
        *driver, ready,
        {blocks * args.pieces, shape.threads(), 0, /*cluster=*/1, /*grid=*/false, stream},
        arguments));
  }
}

}  // namespace

void walk_forward_cuda(const SequenceForwardArgs& args, const RecurrentCell& cell,
                       const at::Tensor& like) {
  walk(args, cell, like, [](const auto&) {});
}

at::Tensor walk_backward_cuda(const SequenceBackwardArgs& args, const RecurrentCell& cell,
                              const at::Tensor& like) {
  at::Tensor grads;
  walk(args, cell, like, [&](WalkArgs<SequenceBackwardArgs>& of_pieces) {
    if (cell.parameters == 0) return;
    const bool wide = args.state_type == ElementType::Double;
    grads = empty({cell.parameters, of_pieces.pieces * args.batch_size, args.hidden_size}, like,
                  wide ? at::kDouble : at::kFloat);
    of_pieces.sequence.grad_parameters = grads.mutable_data_ptr();
  });
  return grads;
}

}  // namespace lltm_jit
#endif
