// What operators need of torch's autograd, alike on every supported version.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace lltm_jit {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// What the nodes of operators have in common.
struct OpNode : public Node {
  // Compiled autograd would trace the node through internals of torch that change from version to
  // version. A compiled forward pass has a node of torch's own in its place.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, name(),
                                ": compiled autograd takes this operator only where ",
                                "the forward pass is compiled, too: use torch.compile there");
  }
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

// Whether forward-mode differentiation (jvp) goes through any of the tensors.
template <typename... Tensors>
bool any_forward_grad(const Tensors&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

inline std::optional<at::Tensor> as_optional(at::Tensor tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt;
}

inline at::Tensor as_tensor(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

}  // namespace lltm_jit
