#include "rnn/sequence/side_by_side/layers.h"

#include <ATen/ops/stack_ops.h>

#include <algorithm>
#include <functional>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/launch/device.h"
#include "core/products/library.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/weight_gradients.h"
#include "rnn/sequence/side_by_side/part.h"

namespace lltm_jit {
namespace {

enum { kWeightIh, kWeightHh, kBiasIh, kBiasHh };  // the weights of a layer

// Some steps of the arrays, and the layers whose parts a launch computes in them.
struct Run {
  int64_t step, steps, first, last;
};

// A call, and the sizes of its arrays [steps, batch, layers, ...].
struct Wavefront {
  at::ArrayRef<Tensor> inputs;  // x, the weights of all layers, and the states, if any
  int64_t layers, each;         // weights of a layer
  const RecurrentCell& cell;
  bool tf32;
  int64_t part;  // steps

  const Tensor& x() const { return inputs[0]; }
  int64_t place(int64_t layer, int64_t kind) const { return 1 + layer * each + kind; }
  const Tensor& weight(int64_t layer, int64_t kind) const { return inputs[place(layer, kind)]; }
  at::ArrayRef<Tensor> states() const { return inputs.slice(place(layers, 0)); }
  int64_t steps() const { return x().size(0); }
  int64_t rows() const { return x().size(1); }
  int64_t units() const { return weight(0, kWeightHh).size(1); }
  int64_t cells() const { return cell.states - 1; }
  int64_t parts() const { return (steps() + part - 1) / part; }
  int64_t launches() const { return parts() + layers - 1; }
  int64_t all_steps() const { return steps() + (layers - 1) * part; }
  SequenceSizes sizes(int64_t of_steps) const {
    return sizes_of(cell, floating_type(x().scalar_type()), tf32, of_steps, rows(), units());
  }

  // The steps of a layer.
  Tensor of_layer(const Tensor& array, int64_t layer) const {
    return array.narrow(0, layer * part, steps()).select(2, layer);
  }
  // A launch's steps as a batch of matrices [rows, ...]: of its layers above the first, or of the layers below those.
  Tensor factor(const Tensor& array, int64_t launch, bool below) const {
    const int64_t first = first_above(launch), step = (launch - below) * part;
    const int64_t of_steps = rows() * std::min(part, all_steps() - launch * part);
    const int64_t size = array.size(3), layer = first - below;
    return array.as_strided({last(launch) + 1 - first, of_steps, size}, {size, layers * size, 1},
                            array.storage_offset() + step * array.stride(0) + layer * size);
  }
  Tensor input_weights(const Tensor& weights, int64_t launch) const {
    const int64_t first = first_above(launch);
    return weights.narrow(0, layers + first - 1, last(launch) + 1 - first);
  }
  // The runs of a launch. There are two while its first layer is at its last part, if that has fewer steps than others.
  std::vector<Run> runs(int64_t launch) const {
    const int64_t first = std::max<int64_t>(launch - parts() + 1, 0), step = launch * part,
                  rest = steps() - (parts() - 1) * part;
    if (launch + 1 < parts() || rest == part) return {{step, part, first, last(launch)}};
    if (first == last(launch)) return {{step, rest, first, first}};
    return {{step, rest, first, last(launch)}, {step + rest, part - rest, first + 1, last(launch)}};
  }

 private:
  int64_t last(int64_t launch) const { return std::min(launch, layers - 1); }
  int64_t first_above(int64_t launch) const { return std::max<int64_t>(launch - parts() + 1, 1); }
};

// What a backward pass needs besides the inputs: the weights, stacked, and skewed arrays.
struct Kept {
  Tensor weights, outputs;  // with each layer's h_0 before the outputs
  Tensor gates, hidden;     // the input's part and the hidden part, or in both places their sum
  Tensor cells;             // before each step, [steps, states-1, batch, layers, hidden]
};

// Whether the call depends on nothing but its inputs, which have the layers' shapes.
bool is_possible(const Wavefront& call) {
  const Tensor& x = call.x();
  const bool alike = std::all_of(call.inputs.begin(), call.inputs.end(), [&](const Tensor& tensor) {
    return is_plain(tensor) && tensor.scalar_type() == x.scalar_type() &&
           tensor.device() == x.device();
  });
  if (!alike || !is_floating_point(x.scalar_type())) return false;
  if (!call.cell.ordinary() || call.cell.parameters > 0) return false;
  if (x.numel() == 0 || call.weight(0, kWeightHh).dim() != 2) return false;
  const int64_t units = call.units(), gates = call.cell.gates * units;
  for (int64_t i = 0; i < call.layers * call.each; ++i) {
    const auto sizes = call.weight(0, i).sizes();
    const int64_t columns = i == 0 ? x.size(2) : units;
    const bool is_bias = i % call.each >= kBiasIh;
    if (!(is_bias ? sizes.equals({gates}) : sizes.equals({gates, columns}))) return false;
  }
  return true;
}

// The steps of a part; 0 if one layer after the other is quicker.
int64_t planned_part(const Wavefront& call) {
#ifdef LLTM_JIT_CUDA
  const c10::DeviceGuard guard(call.x().device());
  return side_by_side_part(call.sizes(call.steps()), static_cast<int>(call.layers),
                           c10::GradMode::is_enabled(), current_gpu());
#else
  return 0;
#endif
}

// The address of a run's layers in a tensor [..., layers, size], at a step if the tensor has steps. Null without data.
void* data_at(const Tensor& tensor, const Run& run, int64_t step = 0) {
  if (!tensor.defined() || tensor.numel() == 0) return nullptr;
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
std::function<bool(Args)> parts_of(const Args& all, const Wavefront& call) {
#ifdef LLTM_JIT_CUDA
  if (call.x().is_cuda()) return sequence_parts_cuda(all, call.cell.cuda, call.x());
#endif
  return [cpu = &call.cell.cpu](const Args& args) {
    if constexpr (std::is_same_v<Args, SequenceForwardArgs>) {
      sequence_forward_cpu(args, *cpu);
    } else {
      sequence_backward_cpu(args, *cpu);
    }
    return true;
  };
}

// The hidden parts' of all layers, then the input's parts' of all but the first.
Tensor stacked(const Wavefront& call, int64_t hidden, int64_t of_input) {
  std::vector<Tensor> all;
  for (int64_t k = 0; k < call.layers; ++k) all.push_back(call.weight(k, hidden));
  for (int64_t k = 1; k < call.layers; ++k) all.push_back(call.weight(k, of_input));
  return at::_ops::stack::call(all, 0);
}

// Of the hidden part; if the cell does not add its gates, stacked like the weights.
Tensor stacked_bias(const Wavefront& call) {
  if (call.each <= kBiasHh) return {};
  if (!call.cell.adds_gates) return stacked(call, kBiasHh, kBiasIh);
  std::vector<Tensor> sums;
  for (int64_t k = 0; k < call.layers; ++k) {
    sums.push_back(call.weight(k, kBiasHh) + call.weight(k, kBiasIh));
  }
  return at::_ops::stack::call(sums, 0);
}

// Fills a tensor with zeros, or copies the given one into it.
Tensor filled(const Tensor& tensor, const Tensor& given) {
  return given.defined() ? Tensor(tensor).copy_(given) : Tensor(tensor).zero_();
}

// The i-th state of all layers, [layers, batch, hidden], in h [batch, layers, hidden] or in the cell states.
Tensor state_in(const Tensor& h, const Tensor& cells, int64_t i) {
  return (i == 0 ? h : cells.select(0, i - 1)).transpose(0, 1);
}

// Output and last states; nothing if the GPU cannot run this.
std::vector<Tensor> forward(const Wavefront& call, bool training, Kept* kept) {
  const Tensor& x = call.x();
  const int64_t rows = call.rows(), layers = call.layers, units = call.units();
  const int64_t steps = call.all_steps(), states = call.cell.states;
  const auto dtype = state_dtype(x.scalar_type());
  SequenceForwardArgs args{call.sizes(call.part)};
  args.directions = args.layers = static_cast<int>(layers);
  auto& [weights, outputs, gates, hidden, cells] = *kept;
  gates = x.new_empty({steps, rows, layers, call.cell.gates * units});
  outputs = x.new_empty({steps + 1, rows, layers, units});
  const Tensor h_n = x.new_empty({rows, layers, units});
  const Tensor c_n = x.new_empty({states - 1, rows, layers, units}, dtype);
  if (training) {
    // The saved gates may replace the gates, because each thread reads a step's gates before it writes.
    hidden = call.cell.adds_gates ? gates : x.new_empty(gates.sizes());
    cells = x.new_empty({steps, states - 1, rows, layers, units}, dtype);
    args.saved_gates.data = hidden.mutable_data_ptr();
  }
  const auto run_part = parts_of(args, call);
  if (!run_part) return {};
  weights = stacked(call, kWeightHh, kWeightIh);
  const Tensor bias = stacked_bias(call);
  const bool adds = bias.defined() && !call.cell.adds_gates;
  if (adds) gates.narrow(2, 1, layers - 1).copy_(bias.narrow(0, layers, layers - 1));
  const OptionalTensor first_bias = adds ? OptionalTensor(call.weight(0, kBiasIh)) : std::nullopt;
  call.of_layer(gates, 0).copy_(
      ops::input_gates.kernel(x, call.weight(0, kWeightIh), first_bias, call.tf32));
  // The place of each layer's initial output, which its first step reads as the previous one.
  const Tensor h_0 = outputs.as_strided({layers, rows, units},
                                        {call.part * outputs.stride(0) + units, layers * units, 1});
  for (int64_t i = 0; i < states; ++i) {
    const auto& given = call.states();
    filled(i == 0 ? h_0 : state_in(h_n, c_n, i), given.empty() ? Tensor() : given[i]);
  }
  const Tensor after = outputs.narrow(0, 1, steps);
  for (int64_t launch = 0; launch < call.launches(); ++launch) {
    if (launch > 0) {
      Tensor to = call.factor(gates, launch, /*below=*/false);
      (adds ? add_by_library : multiply_by_library)(
          call.factor(after, launch, /*below=*/true),
          call.input_weights(weights, launch).transpose(1, 2), call.tf32, to);
    }
    for (const Run& run : call.runs(launch)) {
      take_run(run, weights, args);
      args.gates = steps_at(gates, run);
      args.bias = data_at(bias, run);
      args.old_h = data_at(outputs, run, run.step);
      args.output = steps_at<MutableSequenceArray>(after, run);
      args.new_h = data_at(h_n, run);
      args.old_cells = args.new_cells = data_at(c_n, run);
      args.saved_gates = steps_at<MutableSequenceArray>(hidden, run);
      args.saved_cells = steps_at<MutableSequenceArray>(cells, run);
      if (!run_part(args)) return {};
    }
  }
  std::vector<Tensor> results{call.of_layer(after, layers - 1).contiguous()};
  for (int64_t i = 0; i < states; ++i) {
    results.push_back(x.new_empty({layers, rows, units}).copy_(state_in(h_n, c_n, i)));
  }
  return results;
}

// The gradients of the weights, by products over all steps.
void add_weight_gradients(const Wavefront& call, const Kept& kept, const Tensor& grad_gates,
                          const Tensor& grad_hidden, const BackwardPass& pass,
                          std::vector<Tensor>& grads) {
  const Tensor after = kept.outputs.narrow(0, 1, call.all_steps());
  const auto product = [&](const Tensor& of_gates, const Tensor& array, int64_t layer) {
    const Tensor factor = call.of_layer(array, layer);
    return multiply_steps(of_gates.flatten(0, 1).t(), factor.flatten(0, 1), call.tf32);
  };
  for (int64_t k = 0; k < call.layers; ++k) {
    const Tensor of_input = call.of_layer(grad_gates, k), hidden = call.of_layer(grad_hidden, k);
    const auto wanted = [&](int64_t i) { return i < call.each && pass.wanted[call.place(k, i)]; };
    Tensor* of = &grads[call.place(k, 0)];
    if (wanted(kWeightHh)) of[kWeightHh] = product(hidden, kept.outputs, k);
    if (k > 0 && wanted(kWeightIh)) of[kWeightIh] = product(of_input, after, k - 1);
    if (wanted(kBiasIh)) of[kBiasIh] = grad_bias(of_input);
    const bool same = call.cell.adds_gates && wanted(kBiasIh);
    if (wanted(kBiasHh)) of[kBiasHh] = same ? of[kBiasIh] : grad_bias(hidden);
  }
}

// The gradients of the inputs; nothing if the GPU cannot run this.
std::vector<Tensor> backward(const Wavefront& call, const Kept& kept, const BackwardPass& pass) {
  const auto& [weights, outputs, gates, hidden, cells] = kept;
  const int64_t layers = call.layers, units = call.units(), rows = call.rows();
  const int64_t steps = call.all_steps(), states = call.cell.states;
  const bool adds = call.cell.adds_gates;
  SequenceBackwardArgs args{call.sizes(call.part)};
  args.directions = args.layers = static_cast<int>(layers);
  const auto run_part = parts_of(args, call);
  if (!run_part) return {};
  const Tensor grad_outputs = gates.new_empty({steps, rows, layers, units});
  const Tensor grad_gates = gates.new_empty(gates.sizes());
  const Tensor grad_hidden = adds ? grad_gates : gates.new_empty(gates.sizes());
  const Tensor grad_h = gates.new_empty({rows, layers, units});
  const Tensor grad_cells = cells.new_empty({states - 1, rows, layers, units});
  filled(call.of_layer(grad_outputs, layers - 1), pass.grads[0]);
  for (int64_t i = 0; i < states; ++i) filled(state_in(grad_h, grad_cells, i), pass.grads[1 + i]);
  const Tensor after = outputs.narrow(0, 1, steps);
  for (int64_t launch = call.launches() - 1; launch >= 0; --launch) {
    const auto runs = call.runs(launch);
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      take_run(*run, weights, args);
      args.grad_output = steps_at(grad_outputs, *run);
      args.grad_new_h = args.grad_old_h = data_at(grad_h, *run);
      args.grad_new_cells = args.grad_old_cells = data_at(grad_cells, *run);
      if (!adds) args.gates = steps_at(gates, *run);
      args.output = steps_at(after, *run);
      args.old_h = data_at(outputs, *run, run->step);
      args.saved_gates = steps_at(hidden, *run);
      args.saved_cells = steps_at(cells, *run);
      args.grad_gates = steps_at<MutableSequenceArray>(grad_gates, *run);
      if (!adds) args.grad_hidden = steps_at<MutableSequenceArray>(grad_hidden, *run);
      if (!run_part(args)) return {};
    }
    if (launch > 0) {
      Tensor to = call.factor(grad_outputs, launch, /*below=*/true);
      multiply_by_library(call.factor(grad_gates, launch, /*below=*/false),
                          call.input_weights(weights, launch), call.tf32, to);
    }
  }
  std::vector<Tensor> grads(call.inputs.size());
  add_weight_gradients(call, kept, grad_gates, grad_hidden, pass, grads);
  const std::array wanted{bool(pass.wanted[0]), bool(pass.wanted[1]), false};
  std::tie(grads[0], grads[1], std::ignore) = ops::input_gates_backward.kernel(
      call.of_layer(grad_gates, 0), call.x(), call.weight(0, kWeightIh), wanted, call.tf32);
  for (size_t i = 0; i < call.states().size(); ++i) {
    grads[call.place(layers, i)] = state_in(grad_h, grad_cells, i);
  }
  return grads;
}

// The results of the layers in turn, whose operators are differentiable any number of times.
std::vector<Tensor> in_turn(const Wavefront& call) {
  const c10::AutoGradMode with_gradients(true);
  return recurrent_layers(call.x(), call.inputs.slice(1, call.layers * call.each), call.layers,
                          /*directions=*/1, call.states(), call.cell.name, /*pads=*/false,
                          call.tf32, /*part=*/0);
}

}  // namespace

std::vector<Tensor> layers_side_by_side(at::ArrayRef<Tensor> inputs, int64_t layers,
                                        int64_t weights, const RecurrentCell& cell, bool tf32,
                                        std::optional<int64_t> part) {
  Wavefront call{inputs, layers, weights, cell, tf32, part.value_or(0)};
  if (!is_possible(call)) return {};
  if (!part) call.part = planned_part(call);
  if (call.part == 0) return {};
  const bool training = any_requires_grad(inputs);
  Kept kept;
  const auto results = [&] {
    const KernelGuard guard(call.x());
    return forward(call, training, &kept);
  }();
  if (!training || results.empty()) return results;
  const auto gradients = [layers, weights, tf32, count = inputs.size(), name = cell.name,
                          part = call.part](const BackwardPass& pass) {
    const at::ArrayRef<Tensor> saved(pass.saved), given = saved.slice(0, count);
    Wavefront again{given, layers, weights, find_cell(name), tf32, part};
    const bool plain = std::all_of(pass.grads.begin(), pass.grads.end(), [](const Tensor& grad) {
      return !grad.defined() || is_plain(grad);
    });  // not of vmap
    if (plain && !c10::GradMode::is_enabled()) {
      const KernelGuard guard(given[0]);
      const Tensor* other = &saved[count];
      auto grads = backward(again, {other[0], other[1], other[2], other[3], other[4]}, pass);
      if (!grads.empty()) return grads;
    }
    const auto differentiable = [&](at::TensorList inputs) {
      again.inputs = inputs;
      return in_turn(again);
    };
    return gradients_through(differentiable, given.vec(), pass);
  };
  using Refs = std::vector<std::reference_wrapper<const Tensor>>;
  Refs saved(inputs.begin(), inputs.end());
  saved.insert(saved.end(), {kept.weights, kept.outputs, kept.gates, kept.hidden, kept.cells});
  record({"LayersSideBySideBackward", gradients}, Refs(inputs.begin(), inputs.end()),
         Refs(results.begin(), results.end()), saved);
  return results;
}

}  // namespace lltm_jit
