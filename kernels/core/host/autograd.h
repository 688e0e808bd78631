// How operators are differentiated: what their files need of torch's autograd, whose own headers only
// definitions.h includes.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <bitset>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "core/host/operator.h"

namespace lltm_jit {

// One backward pass through an operator.
struct BackwardPass {
  std::vector<at::Tensor> grads;  // of the outputs; at least one is defined
  std::vector<at::Tensor> saved;  // by record(): those of the inputs, then the outputs
  std::bitset<32> wanted;         // whether somebody asks for the gradient of the i-th input
  // A tensor with these values, whose gradients go to the i-th input, which need not be saved.
  std::function<at::Tensor(size_t i, const at::Tensor& values)> in_place_of_input;
  // By a hook of the node, or anomaly mode, which read the gradients before anything else does.
  bool watched;
};

// The gradients of an operator's inputs; unwanted ones are dropped. A function may keep only numbers of its
// arguments: tensors are saved, so that changes to them are noticed.
struct Derivative {
  const char* name;  // of the node, for profilers and anomaly mode
  std::function<std::vector<at::Tensor>(const BackwardPass& pass)> gradients;
  // Of the ready nodes, a backward pass takes the one with the largest number first: by default the last made.
  std::optional<uint64_t> number{};
};

using TensorRefs = std::initializer_list<std::reference_wrapper<const at::Tensor>>;

// Puts a node between inputs and outputs, and keeps tensors for the backward pass. Inputs may be undefined.
void record(const Derivative& derivative, TensorRefs inputs, TensorRefs outputs,
            TensorRefs saved = {}, TensorRefs saved_outputs = {});

// The number of a node of this name, among the last that a tensor has come through by way of first inputs; if no others
// stand between them than these.
std::optional<uint64_t> number_before(const at::Tensor& tensor, std::string_view name,
                                      std::initializer_list<std::string_view> between);

// The tensor of an optional argument, undefined if it is absent: an optional may lack its value in two ways.
inline const at::Tensor& as_tensor(const at::Tensor& tensor) { return tensor; }
inline const at::Tensor& as_tensor(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}
inline std::optional<at::Tensor> as_optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

template <typename T>
bool requires_grad(const T& arg) {
  if constexpr (std::is_convertible_v<T, std::optional<at::Tensor>>) {
    const at::Tensor& tensor = as_tensor(arg);
    return tensor.defined() && tensor.requires_grad();
  }
  return false;
}

template <typename T>
bool has_forward_grad(const T& arg) {
  if constexpr (std::is_convertible_v<T, std::optional<at::Tensor>>) {
    const at::Tensor& tensor = as_tensor(arg);
    return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
  }
  return false;
}

// Whether the backward pass goes through any of the arguments.
template <typename... Args>
bool any_requires_grad(const Args&... args) {
  return c10::GradMode::is_enabled() && (requires_grad(args) || ...);
}

// Whether forward-mode differentiation (jvp) does.
template <typename... Args>
bool any_forward_grad(const Args&... args) {
  return (has_forward_grad(args) || ...);
}

// Calls an operator's kernel from its autograd function.
template <typename Op, typename... Args>
auto below_autograd(const Op& op, const Args&... args) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op(args...);
}

// The autograd function of an operator that is differentiated by its formula.
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
