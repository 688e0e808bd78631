// Defines what autograd.h and formula.h declare. The headers of torch that this needs take long to
// compile. Only bindings.cpp includes this file: it needs the dispatcher's headers anyway, which
// include most of the same.
#pragma once

// Without this, autograd's headers would include all operators of torch.
#ifndef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
#endif

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/stack_ops.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "core/host/autograd.h"

namespace lltm_jit {

// -------------------------------------------------------------------------------------- autograd --

// The node that record() makes.
class OpNode : public torch::autograd::Node {
 public:
  explicit OpNode(const Derivative& derivative) : derivative_(derivative) {}

  std::string name() const override { return derivative_.name; }

  void save(const at::Tensor& tensor, bool is_output) { saved_.emplace_back(tensor, is_output); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
  }

  // Compiled autograd would trace the node through internals of torch that change between versions.
  // If the forward pass is compiled, torch puts a node of its own in this one's place.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, name(),
                                ": compiled autograd supports this operator only if ",
                                "its forward pass is compiled too: use torch.compile for it");
  }

 private:
  Derivative derivative_;
  std::vector<torch::autograd::SavedVariable> saved_;
};

// std::shared_ptr holds nodes up to torch 2.12, c10::intrusive_ptr from 2.13 on.
template <typename Node>
auto make_node(const Derivative& derivative) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Node>(derivative);
  } else {
    // deleteNode, found through Node's base class, releases a long graph without recursion.
    return std::shared_ptr<Node>(new Node(derivative), [](Node* node) { deleteNode(node); });
  }
}

torch::autograd::variable_list OpNode::apply(torch::autograd::variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto defined = [](const at::Tensor& grad) { return grad.defined(); };
  if (std::none_of(grads.begin(), grads.end(), defined)) {
    return torch::autograd::variable_list(num_outputs());
  }
  const auto in_place_of_input = [this](size_t i, const at::Tensor& values) {
    const auto node = make_node<OpNode>(
        Derivative{derivative_.name, [](const BackwardPass& pass) { return pass.grads; }});
    node->set_next_edges({next_edge(i)});
    at::Tensor result = values.detach();
    torch::autograd::set_history(result, node);
    return result;
  };
  BackwardPass pass{std::move(grads), {}, {}, in_place_of_input};
  pass.saved.reserve(saved_.size());
  for (auto& variable : saved_) pass.saved.push_back(variable.unpack(getptr()));
  for (uint32_t i = 0; i < num_outputs(); ++i) {
    pass.wanted.push_back(task_should_compute_output(i));
  }
  auto result = derivative_.gradients(pass);
  for (size_t i = 0; i < result.size(); ++i) {
    if (!pass.wanted[i]) result[i].reset();
  }
  return result;
}

void record(const Derivative& derivative, TensorRefs inputs, TensorRefs outputs, TensorRefs saved,
            TensorRefs saved_outputs) {
  const auto node = make_node<OpNode>(derivative);
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                    : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
  for (const at::Tensor& tensor : saved) node->save(tensor, /*is_output=*/false);
  for (const at::Tensor& output : saved_outputs) node->save(output, /*is_output=*/true);
}

std::vector<at::Tensor> gradients_through(
    const std::function<std::vector<at::Tensor>(at::TensorList)>& function,
    std::vector<at::Tensor> inputs, const BackwardPass& pass) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (pass.wanted[i]) inputs[i] = pass.in_place_of_input(i, inputs[i]);
  }
  const auto outputs = function(inputs);
  std::vector<at::Tensor> of, by, to;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (pass.grads[i].defined()) of.push_back(outputs[i]), by.push_back(pass.grads[i]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (pass.wanted[i]) to.push_back(inputs[i]);
  }
  const bool again = c10::GradMode::is_enabled();
  const auto found = torch::autograd::grad(of, to, by, again, again, /*allow_unused=*/true);
  std::vector<at::Tensor> grads(inputs.size());
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (pass.wanted[i]) grads[i] = found[next++];
  }
  return grads;
}

// -------------------------------------------------------------------------------------- formulas --

// formula.h does not define these, because its operators would be ambiguous beside torch's.
at::Tensor cat(at::TensorList tensors, int64_t dim) { return at::_ops::cat::call(tensors, dim); }
at::Tensor stacked(at::TensorList tensors) { return at::_ops::stack::call(tensors, 0); }

}  // namespace lltm_jit
