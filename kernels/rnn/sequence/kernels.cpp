// Whole recurrent sequences on CPU and CUDA, and on meta tensors only their results: allocation, which kernels run,
// and the products around them.
#include "rnn/sequence/kernels.h"

#include <ATen/core/Tensor.h>

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/launch/device.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/weight_gradients.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/gates.h"
#include "rnn/sequence/recurrences.h"
#include "rnn/sequence/walk/run.h"
#ifdef LLTM_JIT_CUDA
#include "rnn/sequence/plan/run.h"
#endif

// In one unit: they read the same headers, which take half of the compile time.
#include "core/products/library.cpp"
#include "rnn/cell_step/operators.cpp"
#include "rnn/sequence/all_steps/products.cpp"
#include "rnn/sequence/all_steps/weight_gradients.cpp"

namespace lltm_jit {
namespace {

// Cell states as the kernels keep them.
OptionalTensor running(const OptionalTensor& cells, at::ScalarType dtype) {
  return cells ? OptionalTensor(cells->to(dtype).contiguous()) : std::nullopt;
}

GivenStates running_cells(const SequenceInputs& in) {
  return {running(in.c_0, state_dtype(in.gates.scalar_type())), 3};
}

// Where the steps begin, and how they go on: backwards in memory if the sequence is reversed.
template <typename Array>
void point(Array& steps, const Tensor& tensor, bool reverse) {
  if (!tensor.defined()) return;
  if constexpr (std::is_same_v<Array, SequenceArray>) {
    steps.data = tensor.const_data_ptr();
  } else {
    steps.data = tensor.mutable_data_ptr();
  }
  steps.step_stride = tensor.stride(0), steps.row_stride = tensor.stride(-2);
  if (!reverse) return;
  using Byte = std::conditional_t<std::is_same_v<Array, SequenceArray>, const char, char>;
  const int64_t last = (tensor.size(0) - 1) * steps.step_stride * tensor.element_size();
  steps.data = static_cast<Byte*>(steps.data) + last;
  steps.step_stride = -steps.step_stride;
}

// Of states that rows are reset to; one that all steps have is not moved.
template <typename Array>
void point_to_resets(Array& steps, const OptionalTensor& resets, bool reverse) {
  if (!resets) return;
  const bool one = resets->size(0) == 1;
  point(steps, *resets, reverse && !one);
  if (one) steps.step_stride = 0;
}

SequenceSizes sizes_of(const SequenceInputs& in, const RecurrentCell& cell) {
  const Recurrences all = recurrences_of(in);
  return {
      .steps = in.gates.size(0),
      .batch_size = in.gates.size(1),
      .hidden_size = in.weight_hh.size(-1),
      .gates = cell.gates,
      .states = cell.states,
      .parameters = cell.parameters,
      .adds_gates = cell.adds_gates,
      .type = floating_type(in.gates.scalar_type()),
      .state_type = floating_type(state_dtype(in.gates.scalar_type())),
      .tf32 = in.tf32 && in.gates.scalar_type() == at::kFloat,
      .directions = static_cast<int>(all.directions),
      .heads = static_cast<int>(all.heads),
      .padded = is_padded(in, cell),
      .normalises = cell.normalises(),
  };
}

// The common arguments of forward and backward pass, dense as the kernels take them.
struct DenseInputs {
  Tensor weight_hh;
  OptionalTensor parameters, control;
  GivenStates h, cells;
  bool bidirectional;

  DenseInputs(const SequenceInputs& in, bool padded)
      : weight_hh(readable_weights(in.weight_hh, padded)),
        parameters(in.parameters ? OptionalTensor(readable(*dense(in.parameters))) : std::nullopt),
        control(in.control),
        h(padded || !in.h_0 ? dense(in.h_0) : readable(*dense(in.h_0)), 2),
        cells(running_cells(in)),
        bidirectional(in.bidirectional) {
    if (control && control->stride(-1) != 1) control = control->contiguous();
  }

  template <typename Args>
  void fill(Args& args, bool reverse) const {
    args.weights = weight_hh.const_data_ptr();
    args.weights_stride = weight_hh.stride(-2);
    args.recurrence_stride = weight_hh.stride(0);
    args.parameters = data_or_null(parameters);
    args.old_h = data_or_null(h.first);
    if (!control) return;
    point_to_resets(args.reset_h, h.resets, reverse);
    point_to_resets(args.reset_cells, cells.resets, reverse);
    const Tensor first = bidirectional ? control->select(0, 0) : *control;
    SequenceArray steps{};
    point(steps, first.unsqueeze(2), reverse);
    args.control = static_cast<const uint8_t*>(steps.data);
    args.control_step_stride = steps.step_stride;
    args.control_direction_stride = control->stride(0);
  }
};

// ---------------------------------------------------------------------------------------- forward --

// Whether the gates are padded if this device's kernels need it, and only if they take it.
bool as_kernels_have_it(const SequenceInputs& in, const RecurrentCell& cell) {
  if (in.gates.is_meta() || !cell.ordinary()) return true;
  const bool may = kernels_pad(in.gates);
  const bool whole = in.weight_hh.size(-1) % kWholeAccess == 0;
  return is_padded(in, cell) ? may : !may || whole || in.gates.size(0) == 1;
}
int64_t other_size(const SequenceInputs& in, const RecurrentCell& cell) {
  const int64_t hidden_size = in.weight_hh.size(-1);
  return is_padded(in, cell) ? hidden_size : padded_size(hidden_size);
}

// Whether there are several recurrences that the kernels here cannot take at once, whatever the plan.
bool run_in_turn(const SequenceInputs& in, const RecurrentCell& cell, bool backward = false) {
  if (!has_recurrences(in) || in.gates.is_meta()) return false;
  if (!cell.ordinary()) return true;
  if (is_padded(in, cell)) {
    const bool plain = !in.control && recurrences_of(in).heads == 1;
    return !kernels_pad(in.gates) || (backward && !plain);
  }
  return !in.gates.is_cpu() && in.weight_hh.size(-1) % kWholeAccess > 0;
}

// A layer's arguments, besides those of a sequence.
struct LayerCall {
  OptionalTensor input{}, weight_ih{};  // on a CPU: the factors of the gates' product
  OptionalTensor bias_ih{};             // not in the gates yet
  Tensor output{};                      // where to write that of one direction
  // Last states, [all, batch, hidden_size], of which to write those of the call's directions, from `first` on.
  Tensor h_n{}, c_n{};
  int64_t first = 0;
};

// The dtype of the returned cell states.
at::ScalarType cells_dtype(const SequenceInputs& in) {
  return in.c_0 ? in.c_0->scalar_type() : in.gates.scalar_type();
}

// The results, to be written. On a CPU cell states have the dtype that they run in, and are cast later.
SequenceAndSaved allocate(const SequenceInputs& in, const RecurrentCell& cell, SequenceSaves saves,
                          const LayerCall& call) {
  const auto steps = in.gates.sym_size(0), batch_size = in.gates.sym_size(1);
  const auto hidden_size = recurrences_of(in).count() * in.weight_hh.sym_size(-1);
  const int64_t cells = cell.states - 1;
  const auto state = state_dtype(in.gates.scalar_type());
  const auto of_c_n = in.gates.is_cpu() && cells > 0 ? state : cells_dtype(in);
  const bool given = call.c_n.defined() && call.c_n.scalar_type() == of_c_n;
  return {call.output.defined() ? call.output : empty({steps, batch_size, hidden_size}, in.gates),
          call.h_n.defined() ? call.h_n : empty({batch_size, hidden_size}, in.gates),
          given ? call.c_n : empty({cells, batch_size, hidden_size}, in.gates, of_c_n),
          saves == kSavesAll ? empty(saved_gates_sizes(in, cell), in.gates) : Tensor(),
          saves ? empty({steps, cells, batch_size, hidden_size}, in.gates, state) : Tensor()};
}

void* written_states(const Tensor& states, const Tensor& given, int64_t first) {
  const int64_t before = states.is_same(given) ? first * states.stride(0) : 0;
  return static_cast<char*>(states.mutable_data_ptr()) + before * states.element_size();
}

// The arguments of the kernels, and the tensors that they point to.
struct ForwardCall {
  DenseInputs inputs;
  Tensor gates, input, weight_ih;
  OptionalTensor bias, bias_ih;
  SequenceForwardArgs args;

  ForwardCall(const SequenceInputs& in, const RecurrentCell& cell, const LayerCall& call,
              SequenceAndSaved& results)
      : inputs(in, is_padded(in, cell)),
        bias(dense(in.bias_hh)),
        bias_ih(dense(call.bias_ih)),
        args{sizes_of(in, cell)} {
    const auto& [output, h_n, c_n, saved_gates, saved_cells] = results;
    inputs.fill(args, in.reverse);
    args.bias = data_or_null(bias);
    args.input_bias = data_or_null(bias_ih);
    args.old_cells = data_or_null(inputs.cells.first);
    point(args.output, output, in.reverse);
    args.new_h = written_states(h_n, call.h_n, call.first);
    if (cell.states > 1) args.new_cells = written_states(c_n, call.c_n, call.first);
    args.narrow_cells = floating_type(c_n.scalar_type()) != args.state_type;
    args.states_apart = call.h_n.defined();
    if (cell.product) point(args.saved_gates, saved_gates, in.reverse);
    if (cell.states > 1) point(args.saved_cells, saved_cells, in.reverse);
    if (!call.input) {
      gates = readable(in.gates);
      point(args.gates, gates, in.reverse);
      return;
    }
    input = readable(*call.input), weight_ih = readable(*call.weight_ih);
    point(args.input, input, in.reverse);
    args.input_size = input.size(2);
    args.input_weights = weight_ih.const_data_ptr();
    args.input_weights_stride = weight_ih.stride(0);
  }

  // False if the kernels cannot take all recurrences at once.
  bool run(const RecurrentCell& cell, const Tensor& like) {
#ifdef LLTM_JIT_CUDA
    if (like.is_cuda() && cell.product) return sequence_forward_cuda(args, cell.cuda, like);
    if (like.is_cuda()) walk_forward_cuda(args, cell, like);
#endif
    if (like.is_cpu()) (cell.product ? sequence_forward_cpu : walk_forward_cpu)(args, cell.cpu);
    return true;
  }
};

SequenceAndSaved forward(const SequenceInputs& in, SequenceSaves saves,
                         const LayerCall& call = {}) {
  const RecurrentCell& cell = check_sequence(in);
  const KernelGuard guard(in.gates);
  const auto one_by_one = [&] {
    return in_turn(in, cell, [&](const SequenceInputs& one) { return forward(one, saves); });
  };
  if (run_in_turn(in, cell)) return one_by_one();
  if (!as_kernels_have_it(in, cell)) {
    const ResizedGates resized(in, cell, other_size(in, cell));
    return resized.resize_back(forward(resized.in_place_of(in), saves));
  }
  if (cell.normalises() && in.gates.is_cpu()) return sequence_forward_formula(in);
  SequenceAndSaved results = allocate(in, cell, saves, call);
  auto& [output, h_n, c_n, saved_gates, saved_cells] = results;
  const bool computes = !in.gates.is_meta() && output.numel() > 0;
  if (computes && !ForwardCall(in, cell, call, results).run(cell, in.gates)) return one_by_one();
  if (c_n.scalar_type() != cells_dtype(in)) c_n = c_n.to(cells_dtype(in));
  return results;
}

}  // namespace

SequenceResults sequence_kernel(const SequenceInputs& in) {
  const auto results = forward(in, kSavesNothing);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

SequenceStates sequence_states_kernel(const SequenceInputs& in) {
  const auto [output, h_n, c_n, saved_gates, saved_cells] = forward(in, kSavesCells);
  return {output, h_n, c_n, saved_cells};
}

SequenceAndSaved sequence_forward_kernel(const SequenceInputs& in) {
  return forward(in, kSavesAll);
}

// --------------------------------------------------------------------------------------- backward --

namespace {

// The gradients on a meta device, and zeros for outputs without elements.
SequenceGradients gradients_of_nothing(const SequenceBackwardInputs& in, bool padded) {
  const auto& [gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse, name, tf32,
               bidirectional] = in.in;
  const auto& mask = in.output_mask;
  const auto wanted = [&](size_t i, const OptionalTensor& like) {
    return mask[i] ? empty(like->sym_sizes(), *like) : Tensor();
  };
  SequenceGradients grads{wanted(0, gates),      wanted(1, weight_hh), wanted(2, bias_hh),
                          wanted(3, parameters), wanted(4, h_0),       wanted(5, c_0)};
  if (padded && mask[1]) {
    std::get<1>(grads) = empty_padded_weights(weight_hh, weight_hh.sym_sizes());
  }
  if (gates.is_meta()) return grads;
  std::apply([](auto&... each) { ((each.defined() ? void(each.zero_()) : void()), ...); }, grads);
  return grads;
}

// The gradients of a given state, and of those that rows are reset to.
struct GradientsOfGiven {
  Tensor first;
  OptionalTensor resets;  // sums, which start from zeros in the type that the state runs in

  GradientsOfGiven() = default;
  GradientsOfGiven(const GivenStates& states, const Tensor& gates, at::ScalarType first_type,
                   bool product)
      : first(empty(states.first->sym_sizes(), gates, first_type)) {
    if (!states.resets) return;
    auto sizes = states.resets->sym_sizes().vec();
    // Steps of a walk at once: each has a sum of its own.
    if (!product && gates.is_cuda()) sizes[0] = gates.sym_size(0);
    resets = empty(sizes, gates, state_dtype(gates.scalar_type())).zero_();
  }

  // As the argument that has these states.
  Tensor together(const GivenStates& states) const {
    if (!resets) return first;
    const bool one = states.resets->size(0) < resets->size(0);
    const Tensor sums = one ? resets->sum(0, /*keepdim=*/true) : *resets;
    return cat({first.unsqueeze(0), sums.to(first.scalar_type())}, 0);
  }
};

// The gradients of weight_hh and bias_hh, by products over all steps.
std::pair<Tensor, Tensor> hidden_gradients(const SequenceBackwardInputs& in, bool product,
                                           const Tensor& grad_hidden, const Tensor& output,
                                           const GivenStates& h) {
  const Tensor& weight_hh = in.in.weight_hh;
  const bool of_bias = in.output_mask[2];
  Tensor weights, bias;
  if (in.output_mask[1]) {
    Tensor* sums = of_bias ? &bias : nullptr;
    weights = product ? small_grad_weight_hh(grad_hidden, output, h, in.in, sums)
                      : empty(weight_hh.sym_sizes(), weight_hh);
    if (!weights.defined()) weights = grad_weight_hh(grad_hidden, output, h, in.in);
  }
  if (of_bias && !bias.defined()) bias = grad_bias(grad_hidden);
  return {weights, bias};
}

thread_local at::Storage last_gates, last_hidden;  // for empty_gradients()

// The arguments of the kernels, the tensors that they point to, and the gradients that they write.
struct BackwardCall {
  const SequenceBackwardInputs& in;
  const RecurrentCell& cell;
  const at::ScalarType dtype = state_dtype(in.in.gates.scalar_type());
  const bool padded = is_padded(in.in, cell);
  const DenseInputs inputs{in.in, padded};
  const Tensor gates = readable(in.in.gates);
  Tensor output = in.output;
  GivenStates h = inputs.h;
  OptionalTensor grad_output = in.grad_output;
  const Tensor saved_gates = cell.product ? readable(in.saved_gates.contiguous()) : gates;
  const Tensor saved_cells = in.saved_cells.to(dtype).contiguous();
  const OptionalTensor grad_h_n = dense(in.grad_h_n), grad_c_n = running(in.grad_c_n, dtype);
  const OptionalTensor grad_saved_cells = running(in.grad_saved_cells, dtype);
  // Written:
  const Tensor grad_gates = empty_gradients(in.in.gates, last_gates);
  const Tensor grad_hidden =
      cell.adds_gates ? grad_gates : empty_gradients(in.in.gates, last_hidden);
  Tensor grad_parameters;
  GradientsOfGiven grad_h, grad_cells;
  SequenceBackwardArgs args{sizes_of(in.in, cell)};

  BackwardCall(const SequenceBackwardInputs& of, const RecurrentCell& of_cell)
      : in(of), cell(of_cell) {
    const Tensor& like = in.in.gates;
    if (in.output_mask[4]) grad_h = {inputs.h, like, like.scalar_type(), cell.product};
    if (in.output_mask[5]) grad_cells = {inputs.cells, like, dtype, cell.product};
    if (cell.parameters > 0) {
      grad_parameters = empty({cell.parameters, like.size(1), in.output.size(2)}, like, dtype);
    }
    if (padded) {
      const PaddedOutputs copies(in);
      output = copies.output, h = copies.h, grad_output = copies.grad_output;
    }
    output = readable(output.contiguous());
    if (grad_output) grad_output = readable(*grad_output);
    fill(in.in.reverse);
  }

  void fill(bool reverse) {
    inputs.fill(args, reverse);
    point(args.grad_output, as_tensor(grad_output), reverse);
    args.grad_new_h = data_or_null(grad_h_n);
    args.grad_new_cells = data_or_null(grad_c_n);
    if (!cell.adds_gates) point(args.gates, gates, reverse);
    point(args.output, output, reverse);
    point(args.saved_gates, saved_gates, reverse);
    if (cell.states > 1) point(args.saved_cells, saved_cells, reverse);
    if (cell.states > 1) point(args.grad_saved_cells, as_tensor(grad_saved_cells), reverse);
    point(args.grad_gates, grad_gates, reverse);
    if (!cell.adds_gates) point(args.grad_hidden, grad_hidden, reverse);
    args.grad_old_h = data_or_null(grad_h.first);
    args.grad_old_cells = data_or_null(grad_cells.first);
    point_to_resets(args.grad_reset_h, grad_h.resets, reverse);
    point_to_resets(args.grad_reset_cells, grad_cells.resets, reverse);
    args.grad_parameters = data_or_null(grad_parameters);
  }

  // False if the kernels cannot take all recurrences at once.
  bool run() {
    const Tensor& like = in.in.gates;
#ifdef LLTM_JIT_CUDA
    if (like.is_cuda() && cell.product) return sequence_backward_cuda(args, cell.cuda, like);
    if (like.is_cuda()) grad_parameters = walk_backward_cuda(args, cell, like);
#endif
    if (like.is_cpu()) (cell.product ? sequence_backward_cpu : walk_backward_cpu)(args, cell.cpu);
    return true;
  }

  // The gradients after run(), with the products over all steps.
  SequenceGradients gradients() {
    const auto& mask = in.output_mask;
    grad_output.reset();  // a padded copy, whose memory the products can use
    SequenceGradients grads;
    auto& [of_gates, of_weights, of_bias, of_parameters, of_h_0, of_c_0] = grads;
    if (mask[0]) of_gates = grad_gates;
    std::tie(of_weights, of_bias) = hidden_gradients(in, cell.product, grad_hidden, output, h);
    if (mask[3]) of_parameters = grad_parameters.sum(1).to(gates.scalar_type());
    of_h_0 = grad_h.together(inputs.h);
    if (mask[5]) of_c_0 = grad_cells.together(inputs.cells).to(in.in.c_0->scalar_type());
    return grads;
  }
};

}  // namespace

SequenceGradients sequence_backward_kernel(const SequenceBackwardInputs& in) {
  const RecurrentCell& cell = check_sequence_backward(in);
  const Tensor &gates = in.in.gates, &weight_hh = in.in.weight_hh;
  const KernelGuard guard(gates);
  const bool padded = is_padded(in.in, cell);
  const auto with_room = [&](SequenceGradients grads) {
    auto& of_weights = std::get<1>(grads);
    if (padded && in.output_mask[1]) {
      of_weights = empty_padded_weights(weight_hh, weight_hh.sym_sizes()).copy_(of_weights);
    }
    return grads;
  };
  const auto one_by_one = [&] { return with_room(in_turn(in, cell, sequence_backward_kernel)); };
  if (run_in_turn(in.in, cell, /*backward=*/true)) return one_by_one();
  if (!as_kernels_have_it(in.in, cell)) {
    ResizedGates resized(in.in, cell, other_size(in.in, cell));
    return with_room(resized.resize_back(sequence_backward_kernel(resized.in_place_of(in))));
  }
  if (gates.is_meta() || in.output.numel() == 0) return gradients_of_nothing(in, padded);
  if (cell.normalises() && gates.is_cpu()) return sequence_backward_formula(in);
  BackwardCall call(in, cell);
  return call.run() ? call.gradients() : one_by_one();
}

}  // namespace lltm_jit

#include "rnn/sequence/layer.cpp"  // in this unit, too, because it calls the functions above
