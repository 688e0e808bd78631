// The backward pass of whole recurrent sequences on CPU and CUDA, and on meta tensors only its results: allocation, which
// kernels run, and the products over all steps.
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/launch/device.h"
#include "rnn/sequence/all_steps/products.h"
#include "rnn/sequence/all_steps/weight_gradients.h"
#include "rnn/sequence/calls/dense_inputs.h"
#include "rnn/sequence/walk/run.h"
#ifdef LLTM_JIT_CUDA
#include "rnn/sequence/plan/run.h"
#endif

namespace lltm_jit {
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
    if (like.is_cuda() && cell.product) return sequence_cuda(args, cell.cuda, like);
    if (like.is_cuda()) grad_parameters = walk_backward_cuda(args, cell, like);
#endif
    if (like.is_cpu()) sequence_cpu(args, cell.cpu);
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
    ResizedGates resized(in.in, cell);
    return with_room(resized.resize_back(sequence_backward_kernel(resized.in_place_of(in))));
  }
  if (gates.is_meta() || in.output.numel() == 0) return gradients_of_nothing(in, padded);
  if (cell.normalises() && gates.is_cpu()) return sequence_backward_formula(in);
  BackwardCall call(in, cell);
  return call.run() ? call.gradients() : one_by_one();
}

}  // namespace lltm_jit
