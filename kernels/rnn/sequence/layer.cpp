// A layer's products of all steps and its sequence in one call, for calls without gradients: the way of two operators
// through the dispatcher takes the host as long as a small layer takes a GPU.
#include "rnn/sequence/operators.h"

namespace lltm_jit {
namespace {

// Whether the dispatcher would take these tensors to the kernels of a CPU or GPU and to nothing before them.
template <typename... Args>
bool only_computed(const Args&... args) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const auto keys = (local.included_ | ... | as_tensor(args).key_set()) - local.excluded_;
  using Key = c10::DispatchKey;
  // Those of a GPU differ in the backend alone. The third is that of an argument that is absent.
  const c10::DispatchKeySet usual(
      {Key::CPU, Key::AutogradCPU, Key::AutogradOther, Key::ADInplaceOrView, Key::BackendSelect});
  return (keys.has(Key::CPU) || keys.has(Key::CUDA)) &&
         (keys - usual).highestFunctionalityKey() == Key::Undefined &&
         !any_requires_grad(args...) && !any_forward_grad(args...);
}

}  // namespace

SequenceResults recurrent_layer(const Tensor& input, const Tensor& weight_ih,
                                const OptionalTensor& bias_ih, const Tensor& weight_hh,
                                const OptionalTensor& bias_hh, const OptionalTensor& parameters,
                                const OptionalTensor& h_0, const OptionalTensor& c_0,
                                const OptionalTensor& control, bool reverse, std::string_view cell,
                                bool tf32, bool bidirectional) {
  check(input, weight_ih, bias_ih);
  const bool whole =
      weight_hh.dim() >= 2 && weight_hh.size(-2) == find_cell(cell).gates * weight_hh.size(-1);
  const bool computed =
      only_computed(input, weight_ih, bias_ih, weight_hh, bias_hh, parameters, h_0, c_0, control);
  if (!computed || input.is_cuda() || input.numel() == 0 || !whole) {
    const Tensor gates = (computed ? ops::input_gates.kernel : ops::input_gates.call)(
        input, weight_ih, bias_ih, tf32);
    return (computed ? ops::recurrent_sequence.kernel : ops::recurrent_sequence.call)(
        gates, weight_hh, bias_hh, parameters, h_0, c_0, control, reverse, cell, tf32,
        bidirectional);
  }
  // Of the gates' shape, for the checks; nothing reads it.
  const Tensor gates = empty({1}, input).expand({input.size(0), input.size(1), weight_ih.size(0)});
  const SequenceInputs in{gates,   weight_hh, bias_hh, parameters, h_0,          c_0,
                          control, reverse,   cell,    tf32,       bidirectional};
  const auto results = forward(in, kSavesNothing, {input, weight_ih, bias_ih});
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

SequenceResults recurrent_layers(const Tensor& input, at::ArrayRef<Tensor> weights, int64_t layers,
                                 const OptionalTensor& h_0, const OptionalTensor& c_0,
                                 std::string_view name, bool tf32) {
  const RecurrentCell& cell = find_cell(name);
  const size_t each = weights.size() / layers;
  if (!only_computed(input, h_0, c_0) || input.numel() == 0) return {};
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!only_computed(weights[i])) return {};
    const bool of_hidden = i % each == 1;
    if (of_hidden &&
        (weights[i].dim() != 2 || weights[i].size(0) != cell.gates * weights[i].size(1) ||
         (input.is_cuda() && weights[i].size(1) % kWholeAccess != 0))) {
      return {};
    }
  }
  const KernelGuard guard(input);
  const auto dtype = c_0 ? c_0->scalar_type() : input.scalar_type();
  const int64_t rows = input.size(1), units = weights[1].size(1);
  const Tensor h_n = empty({layers, rows, units}, input);
  const Tensor c_n = cell.states > 1 ? empty({layers, rows, units}, input, dtype) : Tensor();
  Tensor x = input;
  for (int64_t k = 0; k < layers; ++k) {
    const Tensor* own = &weights[k * each];
    const Tensor& weight_ih = own[0];
    OptionalTensor bias_ih, bias_hh, old_h, old_c;
    if (each == 4) bias_ih = own[2], bias_hh = own[3];
    if (h_0) old_h = h_0->select(0, k);
    if (c_0) old_c = c_0->narrow(0, k, 1);
    check(x, weight_ih, bias_ih);
    LayerCall call{.h_n = h_n.select(0, k)};
    if (c_n.defined()) call.c_n = c_n.narrow(0, k, 1);
    const std::array<int64_t, 3> of_gates{x.size(0), rows, weight_ih.size(0)};
    Tensor gates;
    if (x.is_cpu()) {  // where a bias is added where it costs least
      if (each == 4 && cell.adds_gates) bias_ih = *bias_ih + *bias_hh, bias_hh.reset();
      call.input = x, call.weight_ih = weight_ih, call.bias_ih = bias_ih;
      gates = empty({1}, x).expand(of_gates);
    } else {
      if (cell.adds_gates) std::swap(call.bias_ih, bias_ih);
      gates = multiply_steps(matrix(x), weight_ih.t(), tf32, bias_ih).view(of_gates);
    }
    const OptionalTensor none;
    x = std::get<0>(
        forward({gates, own[1], bias_hh, none, old_h, old_c, none, false, name, tf32, false},
                kSavesNothing, call));
  }
  return {x, h_n, c_n};
}

}  // namespace lltm_jit
