#include "core/launch/api.h"

#ifdef LLTM_JIT_CUDA
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/launch/device.h"
#include "rnn/sequence/plan/launch.h"
#include "rnn/sequence/plan/run.h"
#include "rnn/sequence/steps/product.h"

namespace lltm_jit {
namespace {

using at::Tensor;

at::ScalarType dtype(ElementType type) {
  constexpr at::ScalarType kTypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return kTypes[static_cast<int>(type)];
}

// ------------------------------------------------------------------------------------- what runs --

// See limit_sequence_blocks().
std::atomic<int64_t> most_planned{INT64_MAX}, most_launched{INT64_MAX};
std::atomic<PlanKind> planned_kind{PlanKind::Any};

// The kernels of all steps whose launch a device has refused, so that their plans are not tried again.
std::mutex refusing;
std::set<std::pair<int, const void*>> refused;

bool has_refused(const void* kernel) {
  const std::lock_guard lock(refusing);
  return refused.count({c10::cuda::current_device(), kernel}) > 0;
}

// What decides how a pass is compiled.
SequenceUse use_of(const SequenceForwardArgs& args) {
  return {SequencePass::Forward, args.saves(), controls_of(args)};
}
SequenceUse use_of(const SequenceBackwardArgs& args) {
  const bool all_states = args.grad_saved_cells.data != nullptr;
  return {SequencePass::Backward, kSavesNothing, controls_of(args), all_states};
}

// The GPU as it is for a call: kernels of Note [Many rows] take neither given states to reset to, nor gradients of the
// cell states of all steps.
SequenceGpu gpu_for(const SequenceUse& use) {
  SequenceGpu gpu = current_gpu();
  if (use.controls == kGivenResets || use.all_states) gpu.many_rows = false;
  return gpu;
}

// The kernel that a pass needs by its plan, and, if gradients are wanted, the one that the backward pass will need.
VariantRequest request_of(const SequenceSizes& sizes, const SequenceUse& use,
                          const SequencePlan& plan, const CudaCell& cell) {
  auto request = sequence_request(sizes, use, plan, cell);
  if (use.saves == kSavesAll) {
    const SequenceUse backward{SequencePass::Backward, kSavesNothing, use.controls};
    const auto after = sequence_plan(sizes, backward.pass, gpu_for(backward));
    request.beside = {sequence_request(sizes, backward, after, cell)};
  }
  return request;
}

// ------------------------------------------------------------------------------- step by step --

// The kernel of the steps, and its launches.
template <typename Args>
class StepKernel {
 public:
  StepKernel(const Args& args, const CudaCell& cell) {
    static VariantTable<const void, std::string, std::string, ElementType, int, int> table;
    if (args.normalises) {  // Note [A block for each row]
      units_ = step_units(args);
      row_threads_ = normalised_threads(args.hidden_size, units_);
      TORCH_CHECK(row_threads_ > 0, "recurrent_sequence(): expected at most ", kMostRowThreads,
                  " hidden units, or ", kStepUnits * kMostRowThreads, " if they are a multiple of ",
                  kStepUnits, ", of a cell that normalises, but got ", args.hidden_size);
    }
    kernel_ = table.get({cell.kernel, cell.type, args.type, units_, row_threads_}, [&] {
      constexpr bool kForward = std::is_same_v<Args, SequenceForwardArgs>;
      return args.normalises ? normalised_request(args, kForward, units_, cell)
                             : request_of(args, use_of(args), SequencePlan{}, cell);
    });
  }

  template <typename StepArgs>
  void launch(StepArgs args, cudaStream_t stream) const {
    args.units = units_, args.row_threads = row_threads_;
    C10_CUDA_CHECK(launch_step(kernel_, args, stream));
  }

 private:
  int units_ = 1, row_threads_ = 0;
  const void* kernel_;
};

// Makes tensors from raw pointers, for torch's products.
struct Tensors {
  const SequenceSizes& sizes;
  const Tensor& like;

  Tensor at(const void* data, at::IntArrayRef shape, at::IntArrayRef strides,
            at::ScalarType type) const {
    return at::for_blob(const_cast<void*>(data), shape)
        .strides(strides)
        .options(like.options().dtype(type))
        .target_device(like.device())  // or torch would ask the driver where a null pointer is
        .make_tensor();
  }
  Tensor rows(const void* data, int64_t columns, ElementType type) const {
    return at(data, {sizes.batch_size, columns}, {columns, 1}, dtype(type));
  }
  Tensor cells(const void* data) const {
    return at(data, {(sizes.states - 1) * sizes.batch_size, sizes.hidden_size},
              {sizes.hidden_size, 1}, dtype(sizes.state_type));
  }
  // With the zeros of padded columns.
  Tensor weights(const void* data, int64_t stride) const {
    return at(data, {sizes.gates * sizes.gate_size(), sizes.gate_size()}, {stride, 1},
              dtype(sizes.type));
  }
  Tensor empty(int64_t rows, int64_t columns, ElementType type) const {
    return like.new_empty({rows, columns}, dtype(type));
  }
};

void run_steps(const SequenceForwardArgs& args, const CudaCell& cell, const Tensor& like,
               cudaStream_t stream) {
  const StepKernel kernel(args, cell);
  const SequenceSizes& sizes = args;
  const Tensors tensors{sizes, like};
  const int64_t rows = sizes.batch_size, hidden = sizes.hidden_size;
  ForwardStepArgs step{args, 0};
  if (sizes.steps == 1 && !args.old_h) {
    kernel.launch(step, stream);
    return;
  }
  const Tensor h = tensors.empty(rows, sizes.gate_size(), args.type);
  Tensor factor = args.old_h ? tensors.rows(args.old_h, hidden, args.type) : h;
  if (args.reset_h.data) {
    const Tensor control = tensors.at(args.control, {rows, 1}, {1, 1}, at::kByte);
    factor = tensors.rows(args.reset_h.data, hidden, args.type).where(control.eq(kResets), factor);
  }
  if (sizes.padded) {
    h.zero_();
    if (args.old_h) h.narrow(1, 0, hidden).copy_(factor);
    factor = h;
  }
  const Tensor state = tensors.empty(rows, hidden, args.state_type);
  const Tensor cells = tensors.empty((sizes.states - 1) * rows, hidden, args.state_type);
  Tensor products = tensors.empty(rows, sizes.gates * sizes.gate_size(), args.type);
  StepProduct multiply(tensors.weights(args.weights, args.weights_stride).t(), rows, args.tf32);
  step.h = h.mutable_data_ptr();
  step.output_state = state.mutable_data_ptr(), step.cells = cells.mutable_data_ptr();
  for (; step.step < args.steps; ++step.step) {
    if (!step.is_first() || args.old_h) {
      multiply(factor, products, stream);
      step.products = products.const_data_ptr();
    }
    kernel.launch(step, stream);
    factor = h;
  }
}

void run_steps(const SequenceBackwardArgs& args, const CudaCell& cell, const Tensor& like,
               cudaStream_t stream) {
  const StepKernel kernel(args, cell);
  const SequenceSizes& sizes = args;
  const Tensors tensors{sizes, like};
  const int64_t rows = sizes.batch_size, hidden = sizes.hidden_size, size = sizes.gate_size(),
                gates = sizes.gates * size;
  const Tensor grad_state = tensors.empty(rows, hidden, args.state_type);
  const Tensor grad_cells = args.grad_old_cells
                                ? tensors.cells(args.grad_old_cells)
                                : tensors.empty((sizes.states - 1) * rows, hidden, args.state_type);
  const Tensor weights = tensors.weights(args.weights, args.weights_stride);
  StepProduct multiply(weights, rows, args.tf32);
  const bool gates_apart = multiplies_gates_apart(sizes);
  const Tensor weights_apart = weights.view({sizes.gates, size, size});
  Tensor products = gates_apart ? like.new_empty({sizes.gates, rows, size}, at::kFloat)
                                : tensors.empty(rows, size, args.type);
  // The factor beside the weights.
  const auto& grads = args.adds_gates ? args.grad_gates : args.grad_hidden;
  const auto* grads_data = static_cast<const char*>(grads.data);
  BackwardStepArgs step{args,
                        args.steps - 1,
                        nullptr,
                        grad_state.mutable_data_ptr(),
                        grad_cells.mutable_data_ptr(),
                        gates_apart};
  for (; step.step >= 0; --step.step) {
    kernel.launch(step, stream);
    if (step.step == 0 && !args.grad_old_h) return;
    const auto* of_step = grads_data + step.step * grads.step_stride * weights.element_size();
    if (gates_apart) {
      const Tensor each = tensors.at(of_step, {sizes.gates, rows, size},
                                     {size, grads.row_stride, 1}, dtype(args.type));
      multiply_to_floats(each, weights_apart, products);
    } else {
      multiply(tensors.at(of_step, {rows, gates}, {grads.row_stride, 1}, dtype(args.type)),
               products, stream);
    }
    step.products = products.const_data_ptr();
  }
  kernel.launch(step, stream);
}

// ---------------------------------------------------------------------------- persistent kernels --

// The kernel of a shape, forward or backward by the arguments; null if there is no compiler for it.
template <typename Args, typename... Numbers>
const void* variant_of(const Args& args, const SequencePlan& plan,
                       const std::tuple<Numbers...>& shape, const CudaCell& cell) {
  static VariantTable<const void, std::string, std::string, ElementType, SequenceSaves,
                      SequenceControls, bool, bool, bool, Numbers...>
      table;
  const SequenceUse use = use_of(args);
  const std::tuple constants(cell.kernel, cell.type, args.type, use.saves, use.controls,
                             args.padded, args.several(), use.all_states);
  return table.get(std::tuple_cat(constants, shape),
                   [&] { return request_of(args, use, plan, cell); });
}

template <typename Args>
const void* variant(const Args& args, const SequencePlan& plan, const CudaCell& cell) {
  return plan.persistent ? variant_of(args, plan, members_of(plan.shape), cell)
                         : variant_of(args, plan, members_of(plan.many_rows), cell);
}

// Whether the GPU has accepted the launch.
template <typename Args>
bool launch(const void* kernel, const SequencePlan& plan, const Args& args, cudaStream_t stream) {
  const int blocks = plan.persistent ? plan.shape.blocks : plan.many_rows.blocks;
  const bool allowed = blocks <= most_launched.load(std::memory_order_relaxed);
  const auto error =
      allowed ? launch_sequence(kernel, plan, args, stream) : cudaErrorInvalidClusterSize;
  if (!was_refused(error)) {
    C10_CUDA_CHECK(error);
    return true;
  }
  const std::lock_guard lock(refusing);
  refused.insert({c10::cuda::current_device(), kernel});
  return false;
}

// Memory for the blocks of a plan; none if there is not enough.
std::optional<Tensor> workspace_of(const SequencePlan& plan, const Tensor& like) {
  try {
    return empty({plan.workspace}, like, at::kByte);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
}

// Whether the sequence ran in the first of its plans that the GPU accepts. Without memory or a compiler, it goes
// step by step.
template <typename Args>
bool run_persistent(Args args, const CudaCell& cell, const Tensor& like, cudaStream_t stream) {
  const SequenceUse use = use_of(args);
  SequenceGpu gpu = gpu_for(use);
  while (true) {
    const SequencePlan plan = sequence_plan(args, use.pass, gpu);
    if (!plan.persistent && plan.many_rows.blocks == 0) return false;
    const void* kernel = variant(args, plan, cell);
    if (!kernel) return false;
    if (!has_refused(kernel)) {
      const auto workspace = workspace_of(plan, like);
      if (!workspace) return false;
      args.workspace = workspace->mutable_data_ptr();
      if (launch(kernel, plan, args, stream)) return true;
    }
    gpu = after_refusal(gpu, plan);
  }
}

}  // namespace

template <typename Args>
bool sequence_cuda(const Args& args, const CudaCell& cell, const Tensor& like) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  if (run_persistent(args, cell, like, stream)) return true;
  if (args.recurrences() > 1) return false;
  run_steps(args, cell, like, stream);
  return true;
}
template bool sequence_cuda(const SequenceForwardArgs&, const CudaCell&, const Tensor&);
template bool sequence_cuda(const SequenceBackwardArgs&, const CudaCell&, const Tensor&);

template <typename Args>
RunPart<Args> sequence_parts_cuda(const Args& args, const CudaCell& cell, const Tensor& like) {
  const SequenceUse use = use_of(args);
  const SequencePlan plan = sequence_plan(args, use.pass, gpu_for(use));
  const void* kernel = plan.persistent ? variant(args, plan, cell) : nullptr;
  if (!kernel || has_refused(kernel)) return nullptr;
  const auto workspace = workspace_of(plan, like);
  if (!workspace) return nullptr;
  return [=, memory = *workspace, stream = c10::cuda::getCurrentCUDAStream()](Args part) {
    part.workspace = memory.mutable_data_ptr();
    return launch(kernel, plan, part, stream);
  };
}
template RunPart<SequenceForwardArgs> sequence_parts_cuda(const SequenceForwardArgs&,
                                                          const CudaCell&, const Tensor&);
template RunPart<SequenceBackwardArgs> sequence_parts_cuda(const SequenceBackwardArgs&,
                                                           const CudaCell&, const Tensor&);

SequenceGpu current_gpu() {
  SequenceGpu gpu;
  C10_CUDA_CHECK(describe_sequence_gpu(&gpu));
  gpu.kind = planned_kind.load(std::memory_order_relaxed);
  for (int i = 0; i < kClusterSizes; ++i) {
    if (2 << i > most_planned.load(std::memory_order_relaxed)) gpu.clusters[i] = 0;
  }
  return gpu;
}

std::tuple<int64_t, int64_t, int64_t, bool, int64_t, int64_t, int64_t, int64_t, int64_t>
sequence_gpu() {
  const SequenceGpu gpu = current_gpu();
  return std::tuple_cat(std::tuple(gpu.architecture, gpu.shared_bytes, gpu.sms, gpu.grids),
                        gpu.clusters, std::tuple(static_cast<int64_t>(gpu.kind)));
}

void plan_sequences(int64_t kind) { planned_kind = static_cast<PlanKind>(kind); }

std::tuple<int64_t, int64_t, int64_t, int64_t> limit_sequence_blocks(int64_t planned,
                                                                     int64_t launched) {
  most_planned = planned;
  most_launched = launched;
  const std::lock_guard lock(refusing);
  refused.clear();
  return std::tuple_cat(current_gpu().clusters);
}

}  // namespace lltm_jit
#endif
