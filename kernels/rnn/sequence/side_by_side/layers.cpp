#include "rnn/sequence/side_by_side/layers.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/launch/device.h"
#include "core/products/library.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/weight_gradients.h"
#include "rnn/sequence/operators.h"

namespace lltm_jit {
namespace {

// Some steps of the arrays, and the layers whose parts a launch computes in them.
struct Run {
  int64_t step, steps, first, last;
};

// A stack, and its arrays [steps, batch, layers, ...].
struct Stack {
  const RecurrentCell& cell;
  int64_t layers, units, steps, part;  // steps per layer
  int64_t parts = (steps + part - 1) / part, all_steps = steps + (layers - 1) * part;
  int64_t launches = parts + layers - 1;

  // The steps of a layer.
  Tensor of_layer(const Tensor& array, int64_t layer) const {
    return array.narrow(0, layer * part, steps).select(2, layer);
  }
  // A launch's steps as a batch of matrices [rows, ...]: of its layers above the first, or of the layers below those.
  Tensor factor(const Tensor& array, int64_t launch, bool below) const {
    const int64_t first = first_above(launch), step = (launch - below) * part;
    const int64_t rows = array.size(1) * std::min(part, all_steps - launch * part);
    const int64_t size = array.size(3), layer = first - below;
    return array.as_strided({last(launch) + 1 - first, rows, size}, {size, layers * size, 1},
                            array.storage_offset() + step * array.stride(0) + layer * size);
  }
  Tensor input_weights(const Tensor& weights, int64_t launch) const {
    const int64_t first = first_above(launch);
    return weights.narrow(0, layers + first - 1, last(launch) + 1 - first);
  }

  // The runs of a launch. There are two while its first layer is at its last part, if that has fewer steps than others.
  std::vector<Run> runs(int64_t launch) const {
    const int64_t first = std::max<int64_t>(launch - parts + 1, 0),
                  rest = steps - (parts - 1) * part;
    const int64_t step = launch * part;
    if (launch + 1 < parts || rest == part) return {{step, part, first, last(launch)}};
    if (first == last(launch)) return {{step, rest, first, first}};
    return {{step, rest, first, last(launch)}, {step + rest, part - rest, first + 1, last(launch)}};
  }

 private:
  int64_t last(int64_t launch) const { return std::min(launch, layers - 1); }
  int64_t first_above(int64_t launch) const { return std::max<int64_t>(launch - parts + 1, 1); }
};

SequenceSizes sizes_of(const Stack& stack, const Tensor& gates, bool tf32) {
  return {.steps = stack.part,
          .batch_size = gates.size(1),
          .hidden_size = stack.units,
          .gates = stack.cell.gates,
          .states = stack.cell.states,
          .parameters = 0,
          .adds_gates = stack.cell.adds_gates,
          .type = floating_type(gates.scalar_type()),
          .state_type = floating_type(state_dtype(gates.scalar_type())),
          .tf32 = tf32 && gates.scalar_type() == at::kFloat,
          .directions = static_cast<int>(stack.layers),
          .layers = static_cast<int>(stack.layers)};
}

// The address of a run's layers in a tensor [..., layers, size], at a step if the tensor has steps.
void* data_at(const Tensor& tensor, const Run& run, int64_t step = 0) {
  const int64_t at = step * tensor.stride(0) + run.first * tensor.size(-1);
  return static_cast<char*>(tensor.mutable_data_ptr()) + at * tensor.element_size();
}
template <typename Array = SequenceArray>
Array steps_at(const Tensor& tensor, const Run& run) {
  if (!tensor.defined()) return {};
  return {data_at(tensor, run, run.step), tensor.stride(0), tensor.stride(-3)};
}

template <typename Args>
void take_run(const Run& run, const Tensor& weights, Args& args) {
  args.steps = run.steps;
  args.directions = static_cast<int>(run.last + 1 - run.first);
  args.weights_stride = weights.stride(1);
  args.recurrence_stride = weights.stride(0);
  args.weights = static_cast<const char*>(weights.const_data_ptr()) +
                 run.first * weights.stride(0) * weights.element_size();
}

template <typename Args>
std::function<bool(Args)> parts_of(const Args& all, const Stack& stack, const Tensor& like) {
#ifdef LLTM_JIT_CUDA
  if (like.is_cuda()) return sequence_parts_cuda(all, stack.cell.cuda, like);
#endif
  return [cpu = &stack.cell.cpu](const Args& args) {
    if constexpr (std::is_same_v<Args, SequenceForwardArgs>) {
      sequence_forward_cpu(args, *cpu);
    } else {
      sequence_backward_cpu(args, *cpu);
    }
    return true;
  };
}

// Fills a tensor with zeros, or copies the given one into it.
Tensor filled(const Tensor& tensor, const OptionalTensor& given) {
  return given ? Tensor(tensor).copy_(*given) : Tensor(tensor).zero_();
}

}  // namespace

LayersResults layers_forward(const Tensor& gates, const Tensor& weights, const OptionalTensor& bias,
                             const OptionalTensor& h_0, const OptionalTensor& c_0,
                             std::string_view cell, bool tf32, int64_t part, bool training) {
  const KernelGuard guard(gates);
  const Stack stack{find_cell(cell), (weights.size(0) + 1) / 2, weights.size(2), gates.size(0),
                    part};
  const int64_t rows = gates.size(1), layers = stack.layers, units = stack.units;
  const int64_t steps = stack.all_steps, cells = stack.cell.states - 1;
  const auto dtype = state_dtype(gates.scalar_type());
  SequenceForwardArgs args{sizes_of(stack, gates, tf32)};
  const Tensor all_gates = gates.new_empty({steps, rows, layers, gates.size(2)});
  const Tensor outputs = gates.new_empty({steps + 1, rows, layers, units});
  const Tensor h_n = gates.new_empty({rows, layers, units});
  const Tensor c_n = gates.new_empty({cells, rows, layers, units}, dtype);
  Tensor hidden, saved_cells;
  if (training) {
    // The saved gates may replace the gates, because each thread reads a step's gates before it writes.
    hidden = stack.cell.adds_gates ? all_gates : gates.new_empty(all_gates.sizes());
    saved_cells = gates.new_empty({steps, cells, rows, layers, units}, dtype);
    args.saved_gates.data = hidden.mutable_data_ptr();
  }
  const auto run_part = parts_of(args, stack, gates);
  if (!run_part) return {};
  const bool adds = bias && !stack.cell.adds_gates;
  if (adds) {
    all_gates.narrow(2, 1, layers - 1).copy_(bias->narrow(0, layers, layers - 1));
  }
  stack.of_layer(all_gates, 0).copy_(gates);
  // The place of each layer's initial output, which its first step reads as the previous one.
  filled(outputs.as_strided({layers, rows, units},
                            {part * outputs.stride(0) + units, layers * units, 1}),
         h_0);
  filled(c_n.transpose(1, 2), c_0);
  const Tensor after = outputs.narrow(0, 1, steps);
  for (int64_t launch = 0; launch < stack.launches; ++launch) {
    if (launch > 0) {
      Tensor to = stack.factor(all_gates, launch, /*below=*/false);
      (adds ? add_by_library : multiply_by_library)(
          stack.factor(after, launch, /*below=*/true),
          stack.input_weights(weights, launch).transpose(1, 2), tf32, to);
    }
    for (const Run& run : stack.runs(launch)) {
      take_run(run, weights, args);
      args.gates = steps_at(all_gates, run);
      if (bias) args.bias = data_at(*bias, run);
      args.old_h = data_at(outputs, run, run.step);
      args.output = steps_at<MutableSequenceArray>(after, run);
      args.new_h = data_at(h_n, run);
      if (cells > 0) args.old_cells = args.new_cells = data_at(c_n, run);
      args.saved_gates = steps_at<MutableSequenceArray>(hidden, run);
      if (cells > 0) args.saved_cells = steps_at<MutableSequenceArray>(saved_cells, run);
      if (!run_part(args)) return {};
    }
  }
  return {stack.of_layer(after, layers - 1).contiguous(),
          h_n,
          c_n.to(c_0 ? c_0->scalar_type() : gates.scalar_type()),
          outputs,
          all_gates,
          stack.cell.adds_gates ? Tensor() : hidden,
          saved_cells};
}

LayersGradients layers_backward(const OptionalTensor& grad_output, const OptionalTensor& grad_h_n,
                                const OptionalTensor& grad_c_n, const Tensor& weights,
                                const Tensor& outputs, const Tensor& gates,
                                const OptionalTensor& hidden, const Tensor& saved_cells,
                                std::string_view cell, bool tf32, int64_t part, bool wants_weights,
                                bool wants_bias) {
  const KernelGuard guard(gates);
  const int64_t layers = gates.size(2), units = weights.size(2), rows = gates.size(1);
  const Stack stack{find_cell(cell), layers, units, gates.size(0) - (layers - 1) * part, part};
  const int64_t cells = stack.cell.states - 1;
  const bool adds = stack.cell.adds_gates;
  SequenceBackwardArgs args{sizes_of(stack, gates, tf32)};
  const auto run_part = parts_of(args, stack, gates);
  if (!run_part) return {};
  const Tensor grad_outputs = gates.new_empty({stack.all_steps, rows, layers, units});
  const Tensor grad_gates = gates.new_empty(gates.sizes());
  const Tensor grad_hidden = adds ? grad_gates : gates.new_empty(gates.sizes());
  const Tensor grad_h = filled(gates.new_empty({rows, layers, units}), grad_h_n);
  const Tensor grad_cells = filled(saved_cells.new_empty({cells, rows, layers, units}), grad_c_n);
  filled(stack.of_layer(grad_outputs, layers - 1), grad_output);
  const Tensor after = outputs.narrow(0, 1, stack.all_steps);
  for (int64_t launch = stack.launches - 1; launch >= 0; --launch) {
    const auto runs = stack.runs(launch);
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      take_run(*run, weights, args);
      args.grad_output = steps_at(grad_outputs, *run);
      args.grad_new_h = args.grad_old_h = data_at(grad_h, *run);
      if (!adds) args.gates = steps_at(gates, *run);
      args.output = steps_at(after, *run);
      args.old_h = data_at(outputs, *run, run->step);
      args.saved_gates = steps_at(adds ? gates : *hidden, *run);
      if (cells > 0) {
        args.grad_new_cells = args.grad_old_cells = data_at(grad_cells, *run);
        args.saved_cells = steps_at(saved_cells, *run);
      }
      args.grad_gates = steps_at<MutableSequenceArray>(grad_gates, *run);
      if (!adds) args.grad_hidden = steps_at<MutableSequenceArray>(grad_hidden, *run);
      if (!run_part(args)) return {};
    }
    if (launch > 0) {
      Tensor to = stack.factor(grad_outputs, launch, /*below=*/true);
      multiply_by_library(stack.factor(grad_gates, launch, /*below=*/false),
                          stack.input_weights(weights, launch), tf32, to);
    }
  }
  std::vector<Tensor> of_weights, of_bias;
  for (int64_t i = 0; i < weights.size(0); ++i) {
    const bool is_hidden = i < layers;
    const int64_t below = is_hidden ? i : i - layers;
    const Tensor grads =
        is_hidden ? stack.of_layer(grad_hidden, i) : stack.of_layer(grad_gates, below + 1);
    const Tensor factor = stack.of_layer(is_hidden ? outputs : after, below);
    if (wants_weights) {
      of_weights.push_back(
          multiply_steps(grads.flatten(0, 1).t(), factor.flatten(0, 1), tf32).unsqueeze(0));
    }
    if (wants_bias && (is_hidden || !adds)) of_bias.push_back(grad_bias(grads).unsqueeze(0));
  }
  return {stack.of_layer(grad_gates, 0), wants_weights ? cat(of_weights, 0) : Tensor(),
          wants_bias ? cat(of_bias, 0) : Tensor(), grad_h.transpose(0, 1),
          grad_cells.transpose(1, 2)};
}

}  // namespace lltm_jit
