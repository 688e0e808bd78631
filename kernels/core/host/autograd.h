// How operators are differentiated. These declarations stand for torch's autograd, whose own
// headers only definitions.h includes.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/host/operator.h"

namespace lltm_jit {

// One backward pass through an operator.
struct BackwardPass {
  std::vector<at::Tensor> grads;  // the outputs' gradients; at least one is defined
  std::vector<at::Tensor> saved;  // the tensors that record() saved: inputs, then outputs
  std::vector<bool> wanted;       // whether the i-th input's gradient is asked for
  // Makes a tensor with these values whose gradient goes to the i-th input, which need not be saved.
  std::function<at::Tensor(size_t i, const at::Tensor& values)> in_place_of_input;
};

// Computes the gradients of an operator's inputs; gradients that nobody asked for are dropped. The
// function may keep numbers only: tensors are saved, so that autograd notices changes to them.
struct Derivative {
  const char* name;  // the node's name, for profilers and anomaly mode
  std::function<std::vector<at::Tensor>(const BackwardPass& pass)> gradients;
};

using TensorRefs = c10::ArrayRef<std::reference_wrapper<const at::Tensor>>;

// Puts a node between inputs and outputs, and saves tensors for the backward pass. Inputs may be undefined.
void record(const Derivative& derivative, TensorRefs inputs, TensorRefs outputs,
            TensorRefs saved = {}, TensorRefs saved_outputs = {});

// The wanted gradients of a pass, through a function of the inputs that computes the outputs again by differentiable
// operations. It gets tensors in the inputs' places, as inputs may depend on each other, or be the same tensor.
std::vector<at::Tensor> gradients_through(
    const std::function<std::vector<at::Tensor>(at::TensorList)>& function,
    std::vector<at::Tensor> inputs, const BackwardPass& pass);

// The tensor of an optional argument, undefined if it is absent or holds an undefined tensor.
inline const at::Tensor& as_tensor(const at::Tensor& tensor) { return tensor; }
inline const at::Tensor& as_tensor(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}
inline std::optional<at::Tensor> as_optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

// Whether an argument is a tensor for which `test` holds, or a list that has one.
template <typename T, typename Test>
bool is_tensor_with(const T& arg, const Test& test) {
  if constexpr (std::is_convertible_v<T, std::optional<at::Tensor>>) {
    const at::Tensor& tensor = as_tensor(arg);
    return tensor.defined() && test(tensor);
  } else if constexpr (std::is_convertible_v<T, at::TensorList>) {
    const at::TensorList list(arg);
    return std::any_of(list.begin(), list.end(),
                       [&](const at::Tensor& tensor) { return is_tensor_with(tensor, test); });
  }
  return false;
}

// Whether the backward pass goes through any of the arguments.
template <typename... Args>
bool any_requires_grad(const Args&... args) {
  const auto test = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  return c10::GradMode::is_enabled() && (is_tensor_with(args, test) || ...);
}

// Whether forward-mode differentiation (jvp) goes through any of the arguments.
template <typename... Args>
bool any_forward_grad(const Args&... args) {
  const auto test = [](const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); };
  return (is_tensor_with(args, test) || ...);
}

// Whether the dispatcher would take these tensors only to autograd and the kernels of a CPU or GPU.
template <typename... Args>
bool untransformed(const Args&... args) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  auto keys = local.included_;
  const auto add_keys = [&](const at::Tensor& tensor) {
    keys = keys | tensor.key_set();
    return false;
  };
  (is_tensor_with(args, add_keys), ...);
  keys = keys - local.excluded_;
  using Key = c10::DispatchKey;
  // The keys of a GPU differ only in the backend.
  const c10::DispatchKeySet usual(
      {Key::CPU, Key::AutogradCPU, Key::ADInplaceOrView, Key::BackendSelect});
  return (keys.has(Key::CPU) || keys.has(Key::CUDA)) &&
         (keys - usual).highestFunctionalityKey() == Key::Undefined;
}

// Whether the dispatcher would take these tensors only to the kernels of a CPU or GPU.
template <typename... Args>
bool only_computed(const Args&... args) {
  return untransformed(args...) && !any_requires_grad(args...) && !any_forward_grad(args...);
}

// Whether it would take them only there, and to the backward pass.
template <typename... Args>
bool is_plain(const Args&... args) {
  return untransformed(args...) && !any_forward_grad(args...);
}

// Calls an operator's kernel from its autograd function.
template <typename Op, typename... Args>
auto below_autograd(const Op& op, const Args&... args) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op(args...);
}

// The autograd function of an operator whose formula is differentiated.
template <auto& op>
struct ByFormula;
template <typename Result, typename... Args, Operator<Result(Args...)>& op>
struct ByFormula<op> {
  static Result autograd(Args... args) {
    if (any_requires_grad(args...) || any_forward_grad(args...)) return op.formula(args...);
    return below_autograd(op, args...);
  }
};

}  // namespace lltm_jit
