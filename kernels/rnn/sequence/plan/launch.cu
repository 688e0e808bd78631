#include "core/launch/driver.h"
#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
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

// The arrays that a step reads and writes at once: of the element type, and of the state's type.
struct StepArrays {
  const SequenceSizes& sizes;
  bool aligned = sizes.hidden_size % kStepUnits == 0;

  void add(const void* data, ElementType type, int64_t step_stride = 0, int64_t row_stride = 0) {
    const int of_element = type == ElementType::Double ? 8 : type == ElementType::Float ? 4 : 2;
    const int bytes = min(kStepUnits * of_element, kAccessBytes);
    aligned &= lltm_jit::aligned(bytes, data) && step_stride % kStepUnits == 0 &&
               row_stride % kStepUnits == 0;
  }
  template <typename Array>
  void add(const Array& array, ElementType type) {
    add(array.data, type, array.step_stride, array.row_stride);
  }
  template <typename... Pointers>
  void add_each(ElementType type, Pointers... data) {
    (add(static_cast<const void*>(data), type), ...);
  }
};

int units_of(const ForwardStepArgs& args) {
  const auto& of = args.sequence;
  StepArrays arrays{of};
  arrays.add(of.gates, of.type), arrays.add(of.output, of.type);
  arrays.add(of.saved_gates, of.type), arrays.add(of.saved_cells, of.state_type);
  arrays.add_each(of.type, of.bias, of.input_bias, of.parameters, args.products, args.h, of.new_h);
  arrays.add_each(of.state_type, args.output_state, args.cells);
  arrays.add_each(of.narrow_cells ? of.type : of.state_type, of.new_cells);
  if (args.is_first()) {
    arrays.add_each(of.type, of.old_h), arrays.add_each(of.state_type, of.old_cells);
  }
  arrays.add(of.reset_h, of.type), arrays.add(of.reset_cells, of.state_type);
  return arrays.aligned ? kStepUnits : 1;
}

int units_of(const BackwardStepArgs& args) {
  const auto& of = args.sequence;
  StepArrays arrays{of};
  for (const auto& each : {of.grad_output, of.gates, of.output, of.saved_gates}) {
    arrays.add(each, of.type);
  }
  for (const auto& each : {of.saved_cells, of.grad_saved_cells, of.reset_cells}) {
    arrays.add(each, of.state_type);
  }
  arrays.add(of.reset_h, of.type);
  arrays.add(of.grad_reset_h, of.state_type), arrays.add(of.grad_reset_cells, of.state_type);
  arrays.add(of.grad_gates, of.type), arrays.add(of.grad_hidden, of.type);
  arrays.add_each(args.gates_apart ? of.state_type : of.type, args.products);
  arrays.add_each(of.type, of.parameters, of.old_h, of.grad_old_h);
  arrays.add_each(of.state_type, args.grad_output_state, args.grad_cells, of.grad_parameters);
  if (args.is_last()) {
    arrays.add_each(of.type, of.grad_new_h), arrays.add_each(of.state_type, of.grad_new_cells);
  }
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
