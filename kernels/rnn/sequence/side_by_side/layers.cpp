#include "rnn/sequence/side_by_side/layers.h"

#include <algorithm>
#include <functional>

#include "core/host/autograd.h"
#include "core/host/formula.h"
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
  int64_t parts() const { return (steps() + part - 1) / part; }
  int64_t launches() const { return parts() + layers - 1; }
  int64_t all_steps() const { return steps() + (layers - 1) * part; }
  SequenceSizes sizes(int64_t of_steps) const {
    const auto type = floating_type(x().scalar_type());
    SequenceSizes all = sizes_of(cell, type, tf32, of_steps, rows(), units());
    all.directions = all.layers = static_cast<int>(layers);
    return all;
  }
  // Whether the biases of the input's part are not in those of the hidden part.
  bool biases_apart() const { return each > kBiasHh && !cell.adds_gates; }

  // The layers of a launch: the last, and the first that gets the output of a layer below.
  int64_t last(int64_t launch) const { return std::min(launch, layers - 1); }
  int64_t first_above(int64_t launch) const { return std::max<int64_t>(launch - parts() + 1, 1); }

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
    const int64_t first = std::max<int64_t>(launch - parts() + 1, 0), top = last(launch);
    const int64_t step = launch * part, own = std::min(part, steps() - (launch - first) * part);
    if (own == part || first == top) return {{step, own, first, top}};
    return {{step, own, first, top}, {step + own, part - own, first + 1, top}};
  }
};

// The skewed arrays of a forward pass, which the backward pass needs, too; or their gradients.
struct Arrays {
  Tensor weights;
  Tensor outputs;        // with each layer's h_0 before
  Tensor gates, hidden;  // the input's part and the hidden part, or in both places their sum
  Tensor saved_cells;    // before each step, [steps, states-1, batch, layers, hidden]
  Tensor h, cells;       // last states: [batch, layers, hidden], [states-1, batch, layers, hidden]
  // The outputs without h_0.
  Tensor after = outputs.defined() ? outputs.narrow(0, 1, outputs.size(0) - 1) : outputs;
  // The i-th last state, [layers, batch, hidden].
  Tensor state(int64_t i) const { return (i == 0 ? h : cells.select(0, i - 1)).transpose(0, 1); }
};

// What both passes write. training: whether there is a backward pass.
Arrays empty_arrays(const Wavefront& call, bool training) {
  const Tensor& x = call.x();
  const int64_t steps = call.all_steps(), rows = call.rows(), units = call.units();
  const int64_t layers = call.layers, cells = call.cell.states - 1;
  const Tensor gates = x.new_empty({steps, rows, layers, call.cell.gates * units});
  Arrays arrays{.outputs = x.new_empty({steps + 1, rows, layers, units}), .gates = gates};
  // The hidden part may take the gates' place, because each thread reads a step's gates before it writes.
  if (training) arrays.hidden = call.cell.adds_gates ? gates : x.new_empty(gates.sizes());
  arrays.h = x.new_empty({rows, layers, units});
  arrays.cells = x.new_empty({cells, rows, layers, units}, state_dtype(x.scalar_type()));
  return arrays;
}

// Whether the call depends on nothing but its inputs, which have the layers' shapes.
bool is_possible(const Wavefront& call) {
  const Tensor& x = call.x();
  if (!is_plain(call.inputs)) return false;
  for (const Tensor& tensor : call.inputs) {
    if (tensor.scalar_type() != x.scalar_type() || tensor.device() != x.device()) return false;
  }
  if (!is_floating_point(x.scalar_type()) || x.numel() == 0 || !call.cell.ordinary()) return false;
  if (call.cell.parameters > 0 || call.weight(0, kWeightHh).dim() != 2) return false;
  const int64_t units = call.units(), gates = call.cell.gates * units;
  for (int64_t i = 0; i < call.layers * call.each; ++i) {
    const int64_t columns = i == 0 ? x.size(2) : units;
    const at::DimVector weight{gates, columns}, bias{gates};
    const bool is_bias = i % call.each >= kBiasIh;
    if (!call.weight(0, i).sizes().equals(is_bias ? bias : weight)) return false;
  }
  return true;
}

// The address of a run's layers in a tensor [..., layers, size], at a step if the tensor has steps. Null without data.
void* data_at(const Tensor& tensor, const Run& run, int64_t step = 0) {
  if (!tensor.defined() || tensor.numel() == 0) return nullptr;
  const int64_t at = step * tensor.stride(0) + run.first * tensor.size(-1);
  return static_cast<char*>(tensor.mutable_data_ptr()) + at * tensor.element_size();
}
template <typename Array>
void set_steps(Array& steps, const Tensor& tensor, const Run& run) {
  if (!tensor.defined()) return;
  steps = {data_at(tensor, run, run.step), tensor.stride(0), tensor.stride(-3)};
}

// What both passes tell the kernels of a run.
template <typename Args>
void set_run(Args& args, const Arrays& arrays, const Run& run) {
  const Tensor& weights = arrays.weights;
  args.steps = run.steps;
  args.directions = static_cast<int>(run.last + 1 - run.first);
  args.weights_stride = weights.stride(1);
  args.recurrence_stride = weights.stride(0);
  args.weights = static_cast<const char*>(weights.const_data_ptr()) +
                 run.first * weights.stride(0) * weights.element_size();
  args.old_h = data_at(arrays.outputs, run, run.step);
  set_steps(args.output, arrays.after, run);
  set_steps(args.saved_gates, arrays.hidden, run);
  set_steps(args.saved_cells, arrays.saved_cells, run);
}

template <typename Args>
std::function<bool(Args)> parts_of(const Args& all, const Wavefront& call) {
#ifdef LLTM_JIT_CUDA
  if (call.x().is_cuda()) return sequence_parts_cuda(all, call.cell.cuda, call.x());
#endif
  return [cpu = &call.cell.cpu](const Args& args) {
    sequence_cpu(args, *cpu);
    return true;
  };
}

// The hidden parts' of all layers, then the input's parts' from a layer on.
Tensor both_parts(const Wavefront& call, int64_t hidden, int64_t of_input, int64_t from) {
  std::vector<Tensor> all;
  for (int64_t k = 0; k < call.layers; ++k) all.push_back(call.weight(k, hidden));
  for (int64_t k = from; k < call.layers; ++k) all.push_back(call.weight(k, of_input));
  return stacked(all);
}

// Of both parts, or their sums.
Tensor stacked_bias(const Wavefront& call) {
  if (call.each <= kBiasHh) return {};
  const Tensor all = both_parts(call, kBiasHh, kBiasIh, 0);
  if (call.biases_apart()) return all;
  return all.narrow(0, 0, call.layers) + all.narrow(0, call.layers, call.layers);
}

// Copies what is given, or zeros.
void fill(const Tensor& tensor, const Tensor& given) {
  given.defined() ? tensor.copy_(given) : tensor.zero_();
}

// Writes what launches read first: gates of the first layer, biases in those of others, and states.
void begin_forward(const Wavefront& call, const Tensor& bias, const Arrays& arrays) {
  const int64_t rows = call.rows(), layers = call.layers, units = call.units();
  OptionalTensor first_bias;
  if (call.biases_apart()) {
    first_bias = call.weight(0, kBiasIh);
    arrays.gates.narrow(2, 1, layers - 1).copy_(bias.narrow(0, layers + 1, layers - 1));
  }
  call.of_layer(arrays.gates, 0)
      .copy_(ops::input_gates.kernel(call.x(), call.weight(0, kWeightIh), first_bias, call.tf32));
  // The place of each layer's initial output, which its first step reads as the previous one.
  const Tensor h_0 = arrays.outputs.as_strided(
      {layers, rows, units}, {(call.part * rows * layers + 1) * units, layers * units, 1});
  for (int64_t i = 0; i < call.cell.states; ++i) {
    fill(i == 0 ? h_0 : arrays.state(i), call.states().empty() ? Tensor() : call.states()[i]);
  }
}

// Output and last states; nothing if the GPU cannot run this.
std::vector<Tensor> forward(const Wavefront& call, bool training, Arrays* arrays) {
  const KernelGuard guard(call.x());
  *arrays = empty_arrays(call, training);
  auto& [weights, outputs, gates, hidden, saved_cells, h, cells, after] = *arrays;
  SequenceForwardArgs args{call.sizes(call.part)};
  if (training) {
    saved_cells =
        cells.new_empty({call.all_steps(), cells.size(0), h.size(0), call.layers, call.units()});
  }
  set_steps(args.saved_gates, hidden, {});
  const auto run_part = parts_of(args, call);
  if (!run_part) return {};
  weights = both_parts(call, kWeightHh, kWeightIh, 1);
  const Tensor bias = stacked_bias(call);
  begin_forward(call, bias, *arrays);
  for (int64_t launch = 0; launch < call.launches(); ++launch) {
    if (launch > 0) {
      Tensor to = call.factor(gates, launch, /*below=*/false);
      (call.biases_apart() ? add_by_library : multiply_by_library)(
          call.factor(after, launch, /*below=*/true),
          call.input_weights(weights, launch).transpose(1, 2), call.tf32, to);
    }
    for (const Run& run : call.runs(launch)) {
      set_run(args, *arrays, run);
      set_steps(args.gates, gates, run);
      args.bias = data_at(bias, run);
      args.new_h = data_at(h, run);
      args.old_cells = args.new_cells = data_at(cells, run);
      if (!run_part(args)) return {};
    }
  }
  std::vector<Tensor> results{call.of_layer(after, call.layers - 1).contiguous()};
  for (int64_t i = 0; i < call.cell.states; ++i) {
    results.push_back(outputs.new_empty(arrays->state(i).sizes()).copy_(arrays->state(i)));
  }
  return results;
}

// The gradients of the arrays; false if the GPU cannot run this.
bool run_backward(const Wavefront& call, const Arrays& arrays, const Arrays& grads) {
  SequenceBackwardArgs args{call.sizes(call.part)};
  const auto run_part = parts_of(args, call);
  if (!run_part) return false;
  for (int64_t launch = call.launches() - 1; launch >= 0; --launch) {
    const auto runs = call.runs(launch);
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      set_run(args, arrays, *run);
      set_steps(args.grad_output, grads.after, *run);
      set_steps(args.grad_gates, grads.gates, *run);
      if (!call.cell.adds_gates) {
        set_steps(args.gates, arrays.gates, *run);
        set_steps(args.grad_hidden, grads.hidden, *run);
      }
      args.grad_new_h = args.grad_old_h = data_at(grads.h, *run);
      args.grad_new_cells = args.grad_old_cells = data_at(grads.cells, *run);
      if (!run_part(args)) return false;
    }
    if (launch > 0) {
      Tensor to = call.factor(grads.after, launch, /*below=*/true);
      multiply_by_library(call.factor(grads.gates, launch, /*below=*/false),
                          call.input_weights(arrays.weights, launch), call.tf32, to);
    }
  }
  return true;
}

// The gradients of the inputs, by products over all steps.
std::vector<Tensor> input_gradients(const Wavefront& call, const Arrays& arrays, const Arrays& of,
                                    const BackwardPass& pass) {
  std::vector<Tensor> grads(call.inputs.size());
  const auto product = [&](const Tensor& of_gates, const Tensor& array, int64_t layer) {
    return multiply_steps(of_gates.flatten(0, 1).t(), call.of_layer(array, layer).flatten(0, 1),
                          call.tf32);
  };
  for (int64_t k = 0; k < call.layers; ++k) {
    const Tensor of_input = call.of_layer(of.gates, k), hidden = call.of_layer(of.hidden, k);
    const auto wanted = [&](int64_t i) { return i < call.each && pass.wanted[call.place(k, i)]; };
    Tensor* own = &grads[call.place(k, 0)];
    if (wanted(kWeightHh)) own[kWeightHh] = product(hidden, arrays.outputs, k);
    if (k > 0 && wanted(kWeightIh)) own[kWeightIh] = product(of_input, arrays.after, k - 1);
    if (wanted(kBiasIh)) own[kBiasIh] = grad_bias(of_input);
    const bool same = call.cell.adds_gates && wanted(kBiasIh);
    if (wanted(kBiasHh)) own[kBiasHh] = same ? own[kBiasIh] : grad_bias(hidden);
  }
  const std::array wanted{bool(pass.wanted[0]), bool(pass.wanted[1]), false};
  std::tie(grads[0], grads[1], std::ignore) = ops::input_gates_backward.kernel(
      call.of_layer(of.gates, 0), call.x(), call.weight(0, kWeightIh), wanted, call.tf32);
  const int64_t states = call.place(call.layers, 0);
  for (size_t i = states; i < grads.size(); ++i) grads[i] = of.state(i - states);
  return grads;
}

// The gradients of the inputs, by kernels if they can, or through the layers in turn, which are differentiable again.
std::vector<Tensor> backward(const Wavefront& call, const Arrays& arrays,
                             const BackwardPass& pass) {
  if (is_plain(pass.grads) && !c10::GradMode::is_enabled()) {
    const KernelGuard guard(call.x());
    const Arrays grads = empty_arrays(call, /*training=*/true);
    fill(call.of_layer(grads.after, call.layers - 1), pass.grads[0]);
    for (int64_t i = 0; i < call.cell.states; ++i) fill(grads.state(i), pass.grads[1 + i]);
    if (run_backward(call, arrays, grads)) return input_gradients(call, arrays, grads, pass);
  }
  const auto in_turn = [&](at::TensorList inputs) {
    const c10::AutoGradMode with_gradients(true);
    const size_t weights = call.layers * call.each;
    return recurrent_layers(inputs[0], inputs.slice(1, weights), call.layers, /*directions=*/1,
                            inputs.slice(1 + weights), call.cell.name, /*pads=*/false, call.tf32,
                            /*part=*/0);
  };
  return gradients_through(in_turn, call.inputs.vec(), pass);
}

}  // namespace

std::vector<Tensor> layers_side_by_side(at::ArrayRef<Tensor> inputs, int64_t layers,
                                        int64_t weights, const RecurrentCell& cell, bool tf32,
                                        std::optional<int64_t> part) {
  Wavefront call{inputs, layers, weights, cell, tf32, part.value_or(0)};
  if (!is_possible(call)) return {};
#ifdef LLTM_JIT_CUDA
  const c10::DeviceGuard guard(call.x().device());
  const bool may_train = c10::GradMode::is_enabled();
  if (!part) call.part = side_by_side_part(call.sizes(call.steps()), may_train, current_gpu());
#endif
  if (call.part == 0) return {};
  const bool training = any_requires_grad(inputs);
  Arrays kept;
  const auto results = forward(call, training, &kept);
  if (!training || results.empty()) return results;
  const auto gradients = [layers, weights, tf32, count = inputs.size(), name = cell.name,
                          part = call.part](const BackwardPass& pass) {
    const at::ArrayRef<Tensor> saved(pass.saved), own = saved.slice(count);
    return backward({saved.slice(0, count), layers, weights, find_cell(name), tf32, part},
                    {own[0], own[1], own[2], own[3], own[4]}, pass);
  };
  using Refs = std::vector<std::reference_wrapper<const Tensor>>;
  Refs saved(inputs.begin(), inputs.end());
  saved.insert(saved.end(),
               {kept.weights, kept.outputs, kept.gates, kept.hidden, kept.saved_cells});
  record({"LayersSideBySideBackward", gradients}, Refs(inputs.begin(), inputs.end()),
         Refs(results.begin(), results.end()), saved);
  return results;
}

}  // namespace lltm_jit
