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
  const GateOperands operands{input, weight_ih, bias_ih};
  // Of the gates' shape, for the checks; nothing reads it.
  const Tensor gates = empty({1}, input).expand({input.size(0), input.size(1), weight_ih.size(0)});
  const SequenceInputs in{gates,   weight_hh, bias_hh, parameters, h_0,          c_0,
                          control, reverse,   cell,    tf32,       bidirectional};
  const auto results = forward(in, kSavesNothing, &operands);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

}  // namespace lltm_jit
