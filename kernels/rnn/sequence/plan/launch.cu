#include "core/launch/driver.h"
#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "rnn/sequence/plan/aligned.h"
#include "rnn/sequence/plan/launch.h"

namespace lltm_jit {
namespace {

// arrays: of h's size, that the blocks of a grid exchange.
template <typename Args>
cudaError_t launch_sets(const void* kernel, const SequencePlan& plan, int arrays, const Args& args,
                        cudaStream_t stream) {
  const SequenceShape& shape = plan.shape;
  constexpr bool kBackward = std::is_same_v<Args, SequenceBackwardArgs>;
  const int threads = kBackward ? shape.backward_threads() : shape.threads();
  const int cluster = shape.grid ? 1 : shape.blocks;
  const Wanted wanted{threads, plan.shared_bytes, cluster, shape.grid};
  const Driver* driver = nullptr;
  ReadyKernel ready;
  LLTM_JIT_TRY(find_driver(&driver));
  LLTM_JIT_TRY(find_ready(*driver, kernel, &wanted, &ready));
  if (shape.blocks > 1 && ready.architecture < 90) return cudaErrorNotSupported;
  const int64_t all = shape.sets(args.batch_size, args.recurrences());
  int64_t sets = all;
  if (shape.grid) {  // Note [The whole grid]
    if (ready.blocks < shape.blocks) return cudaErrorNotSupported;
    sets = min(sets, int64_t(ready.blocks / shape.blocks));
    LLTM_JIT_TRY(cudaMemsetAsync(args.workspace, 0xff,
                                 shape.operands_bytes(args.steps, all, arrays), stream));
  }
  void* arguments[] = {const_cast<Args*>(&args)};
  return launch_ready(
      *driver, ready,
      {sets * shape.blocks, threads, plan.shared_bytes, cluster, shape.grid, stream}, arguments);
}

template <typename Args>
cudaError_t launch_many_rows(const void* kernel, const ManyRowsShape& shape, Args args,
                             cudaStream_t stream) {
  const SequenceSizes& sizes = args;
  const Wanted wanted{shape.threads(), shape.shared_bytes(sizes.gates, sizes.parameters),
                      shape.blocks, true};
  const Driver* driver = nullptr;
  ReadyKernel ready;
  LLTM_JIT_TRY(find_driver(&driver));
  LLTM_JIT_TRY(find_ready(*driver, kernel, &wanted, &ready));
  const int64_t clusters = ceil_div(args.hidden_size, int64_t(shape.units));
  if (ready.blocks < clusters) return cudaErrorNotSupported;
  void* arguments[] = {&args};
  const int64_t rows = shape.tiles * shape.tile_rows(args.batch_size);
  for (; args.first_row < args.batch_size; args.first_row += rows) {
    LLTM_JIT_TRY(cudaMemsetAsync(args.workspace, 0, shape.exchange_bytes(args.batch_size), stream));
    LLTM_JIT_TRY(launch_ready(
        *driver, ready,
        {clusters * shape.blocks, wanted.threads, wanted.shared_bytes, shape.blocks, true, stream},
        arguments));
  }
  return cudaSuccess;
}

template <typename Args>
cudaError_t launch_plan(const void* kernel, const SequencePlan& plan, int arrays, const Args& args,
                        cudaStream_t stream) {
  return plan.persistent ? launch_sets(kernel, plan, arrays, args, stream)
                         : launch_many_rows(kernel, plan.many_rows, args, stream);
}

// Units that a thread has at once in a step.
int units_of(const ForwardStepArgs& args) {
  const auto& of = args.sequence;
  AlignedArrays arrays = arrays_of(of, kStepUnits, args.is_first());
  arrays.add_each(of.type, args.products, args.h);
  arrays.add_each(of.state_type, args.output_state, args.cells);
  return arrays.aligned ? kStepUnits : 1;
}
int units_of(const BackwardStepArgs& args) {
  const auto& of = args.sequence;
  AlignedArrays arrays = arrays_of(of, kStepUnits, args.is_last());
  arrays.add(args.products, args.gates_apart ? of.state_type : of.type);
  arrays.add_each(of.state_type, args.grad_output_state, args.grad_cells);
  return arrays.aligned ? kStepUnits : 1;
}

template <typename Args>
cudaError_t launch_one_step(const void* kernel, Args args, cudaStream_t stream) {
  const Driver* driver = nullptr;
  ReadyKernel ready;
  LLTM_JIT_TRY(find_driver(&driver));
  LLTM_JIT_TRY(find_ready(*driver, kernel, nullptr, &ready));
  if (args.row_threads == 0) args.units = units_of(args);
  const int64_t packs_of_row = args.sequence.hidden_size / args.units;
  const int64_t count = args.sequence.batch_size * packs_of_row;
  Divisor packs(packs_of_row, count);
  void* arguments[] = {&args, &packs};
  const bool rows = args.row_threads > 0;
  const int64_t blocks = rows ? args.sequence.batch_size : blocks_for(count);
  const int threads = rows ? args.row_threads : kThreads;
  return launch_ready(*driver, ready, {blocks, threads, 0, /*cluster=*/1, /*grid=*/false, stream},
                      arguments);
}

}  // namespace

cudaError_t launch_sequence(const void* kernel, const SequencePlan& plan,
                            const SequenceForwardArgs& args, cudaStream_t stream) {
  return launch_plan(kernel, plan, 1, args, stream);
}
cudaError_t launch_sequence(const void* kernel, const SequencePlan& plan,
                            const SequenceBackwardArgs& args, cudaStream_t stream) {
  const SequenceSizes& sizes = args;
  return launch_plan(kernel, plan, sizes.gates, args, stream);
}

int step_units(const SequenceForwardArgs& args) {
  return min(units_of(ForwardStepArgs{args, 0}), units_of(ForwardStepArgs{args, args.steps - 1}));
}
int step_units(const SequenceBackwardArgs& args) {
  return min(units_of(BackwardStepArgs{args, 0}), units_of(BackwardStepArgs{args, args.steps - 1}));
}

cudaError_t launch_step(const void* kernel, const ForwardStepArgs& args, cudaStream_t stream) {
  return launch_one_step(kernel, args, stream);
}
cudaError_t launch_step(const void* kernel, const BackwardStepArgs& args, cudaStream_t stream) {
  return launch_one_step(kernel, args, stream);
}

}  // namespace lltm_jit
