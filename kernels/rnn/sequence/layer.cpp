// Layers in one call: going through Python for each operator takes the host as long as a small layer takes a GPU.
// So does the dispatcher, which calls without gradients skip.
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/stack_ops.h>

#include "core/host/formula.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/padding/operands.h"

namespace lltm_jit {
namespace {

// Whether the dispatcher would take these tensors only to the kernels of a CPU or GPU.
template <typename... Args>
bool only_computed(const Args&... args) {
  return untransformed(args...) && !any_requires_grad(args...) && !any_forward_grad(args...);
}

// The arguments of recurrent_layer().
struct LayerInputs {
  Tensor x, weight_ih;
  OptionalTensor bias_ih;
  Tensor weight_hh;
  OptionalTensor bias_hh, parameters, h_0, c_0, control;
  bool reverse;
  std::string_view cell;
  bool tf32, bidirectional;

  bool is_only_computed() const {
    return only_computed(x, weight_ih, bias_ih, weight_hh, bias_hh, parameters, h_0, c_0, control);
  }
};

// computed: whether to skip the dispatcher.
SequenceResults run(const LayerInputs& in, bool computed, LayerCall call = {}) {
  const auto& [x, weight_ih, bias_ih, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse,
               name, tf32, bidirectional] = in;
  if (!computed) {
    const Tensor gates = ops::input_gates(x, weight_ih, bias_ih, tf32);
    return ops::recurrent_sequence(gates, weight_hh, bias_hh, parameters, h_0, c_0, control,
                                   reverse, name, tf32, bidirectional);
  }
  const RecurrentCell& cell = find_cell(name);
  Tensor gates;
  if (x.is_cpu() && x.numel() > 0 && weight_hh.dim() >= 2 &&
      weight_hh.size(-2) == cell.gates * weight_hh.size(-1)) {
    check(x, weight_ih, bias_ih);
    call.input = x, call.weight_ih = weight_ih, call.bias_ih = bias_ih;
    // Of the gates' shape, for the checks; nothing reads it.
    gates = empty({1}, x).expand({x.size(0), x.size(1), weight_ih.size(0)});
  } else {
    if (call.bias_ih) check(x, weight_ih, bias_ih);  // which the product does not get to see
    gates = ops::input_gates.kernel(x, weight_ih, call.bias_ih ? std::nullopt : bias_ih, tf32);
  }
  const auto [output, h_n, c_n, saved_gates, saved_cells] =
      forward({gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse, name, tf32,
               bidirectional},
              kSavesNothing, call);
  return {output, h_n, c_n};
}

// Note [Padded gates] (kernels.h). Adds the biases of a cell that adds its gates.
void pad(LayerInputs& in, const RecurrentCell& cell) {
  const bool adds = in.bias_ih && cell.adds_gates, aligned = in.x.size(2) % kLine == 0;
  const auto [x, weight_ih, weight_hh, bias_ih, bias_hh] =
      ops::pad_gates(aligned ? OptionalTensor() : in.x, in.weight_ih, in.weight_hh, in.bias_ih,
                     in.bias_hh, cell.gates, adds);
  if (!aligned) in.x = x;
  in.weight_ih = weight_ih, in.weight_hh = weight_hh;
  if (in.bias_hh) in.bias_ih = bias_ih, in.bias_hh = bias_hh;
  if (adds) in.bias_ih.reset();
}

}  // namespace

SequenceResults recurrent_layer(const Tensor& input, const Tensor& weight_ih,
                                const OptionalTensor& bias_ih, const Tensor& weight_hh,
                                const OptionalTensor& bias_hh, const OptionalTensor& parameters,
                                const OptionalTensor& h_0, const OptionalTensor& c_0,
                                const OptionalTensor& control, bool reverse, std::string_view cell,
                                bool tf32, bool bidirectional) {
  const LayerInputs in{input, weight_ih, bias_ih, weight_hh, bias_hh, parameters,   h_0,
                       c_0,   control,   reverse, cell,      tf32,    bidirectional};
  return run(in, in.is_only_computed());
}

SequenceResults recurrent_layers(const Tensor& input, at::ArrayRef<Tensor> weights, int64_t layers,
                                 const OptionalTensor& h_0, const OptionalTensor& c_0,
                                 std::string_view name, bool pads, bool tf32) {
  const RecurrentCell& cell = find_cell(name);
  const size_t each = weights.size() / layers;
  // Whether the kernels of all layers write into the same last states.
  bool at_once = !pads && cell.parameters == 0 && input.numel() > 0;
  at_once = at_once && only_computed(input, h_0, c_0);
  for (size_t i = 0; at_once && i < weights.size(); ++i) {
    const Tensor& weight = weights[i];
    at_once = only_computed(weight);
    if (!at_once || i % each != 1) continue;
    at_once = weight.dim() == 2 && weight.size(0) == cell.gates * weight.size(1) &&
              weight.size(1) == weights[1].size(1) &&
              (input.is_cpu() || input.size(0) == 1 || weight.size(1) % kWholeAccess == 0);
  }
  std::optional<KernelGuard> guard;
  Tensor x = input, all_h, all_c;
  if (at_once) {
    guard.emplace(input);
    const int64_t rows = input.size(1), units = weights[1].size(1);
    const auto dtype = c_0 ? c_0->scalar_type() : input.scalar_type();
    all_h = empty({layers, rows, units}, input);
    if (cell.states > 1) all_c = empty({layers, rows, units}, input, dtype);
  }
  std::vector<Tensor> h_n(layers), c_n(layers);
  for (int64_t k = 0; k < layers; ++k) {
    const Tensor* own = &weights[k * each];
    LayerInputs one{.x = x, .weight_ih = own[0], .weight_hh = own[1], .cell = name, .tf32 = tf32};
    if (each >= 4) one.bias_ih = own[2], one.bias_hh = own[3];
    if (cell.parameters > 0) one.parameters = own[each - 1];
    if (h_0) one.h_0 = h_0->select(0, k);
    if (c_0) one.c_0 = c_0->narrow(0, k, 1);
    LayerCall call;
    if (at_once) call.h_n = all_h.select(0, k);
    if (all_c.defined()) call.c_n = all_c.narrow(0, k, 1);
    if (pads) {
      pad(one, cell);
    } else if (one.bias_ih && cell.adds_gates && at_once && x.is_cuda()) {
      call.bias_ih = one.bias_ih;                 // which the kernel adds
    } else if (one.bias_ih && cell.adds_gates) {  // where the sum costs least
      const Tensor both = *one.bias_ih + *one.bias_hh;
      one.bias_ih.reset(), one.bias_hh.reset();
      (x.is_cuda() ? one.bias_hh : one.bias_ih) = both;
    }
    std::tie(x, h_n[k], c_n[k]) = run(one, at_once || one.is_only_computed(), std::move(call));
  }
  if (at_once) return {x, all_h, all_c};
  if (layers > 1) return {x, at::_ops::stack::call(h_n, 0), cat(c_n, 0)};
  // Neither a copy nor a view, which detach_() would refuse.
  const Tensor& one = h_n[0];
  return {x, at::_ops::_unsafe_view::call(one, {1, one.sym_size(0), one.sym_size(1)}), c_n[0]};
}

}  // namespace lltm_jit
