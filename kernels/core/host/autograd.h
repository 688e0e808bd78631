// What operators need of torch's autograd, alike on every supported version.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lltm_jit {

using torch::autograd::compute_requires_grad;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The node of an operator: saves tensors, and says in backward() what the gradients are.
struct OpNode : public Node {
  // Keeps a tensor for backward(), where saved(i) is the i-th. An output only after record().
  void save(const at::Tensor& tensor, bool is_output = false) {
    saved_.emplace_back(tensor, is_output);
  }
  at::Tensor saved(size_t i) { return saved_[i].unpack(getptr()); }

  // The gradients of the inputs, of which those that nobody asked for are dropped. At least one of
  // `grads` is defined.
  virtual variable_list backward(const variable_list& grads) = 0;

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    bool any = false;
    for (const auto& grad : grads) any = any || grad.defined();
    if (!any) return variable_list(num_outputs());
    variable_list result = backward(grads);
    for (size_t i = 0; i < result.size(); ++i) {
      if (!task_should_compute_output(i)) result[i].reset();
    }
    return result;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
  }

  // Compiled autograd would trace the node through internals of torch that change from version to
  // version. A compiled forward pass has a node of torch's own in its place.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, name(),
                                ": compiled autograd takes this operator only where ",
                                "the forward pass is compiled, too: use torch.compile there");
  }

 private:
  std::vector<SavedVariable> saved_;
};

// Nodes are held by std::shared_ptr up to torch 2.12 and by c10::intrusive_ptr from 2.13 on.
template <typename T, typename... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>) {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  } else {
    // deleteNode, found through T's base, keeps the release of a long graph from recursing.
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...),
                              [](T* node) { deleteNode(node); });
  }
}

// A node T between `inputs` and `outputs`.
template <typename T, typename... Inputs>
auto record(std::initializer_list<at::Tensor> outputs, const Inputs&... inputs) {
  auto node = make_node<T>();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  for (const auto& output : outputs) torch::autograd::set_history(output, node);
  return node;
}

// Whether forward-mode differentiation (jvp) goes through any of the tensors.
template <typename... Tensors>
bool any_forward_grad(const Tensors&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

template <typename Call, typename... Args>
auto below_autograd(const Call& call, const Args&... args) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call(args...);
}

// The autograd kernel of an operator that is differentiated by its ATen formula.
template <auto* call, auto* formula>
struct ByFormula;
template <typename Result, typename... Args, Result (*call)(Args...), Result (*formula)(Args...)>
struct ByFormula<call, formula> {
  static Result autograd(Args... args) {
    if (compute_requires_grad(args...) || any_forward_grad(args...)) return formula(args...);
    return below_autograd(call, args...);
  }
};

inline std::optional<at::Tensor> as_optional(at::Tensor tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt;
}

inline at::Tensor as_tensor(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

}  // namespace lltm_jit
