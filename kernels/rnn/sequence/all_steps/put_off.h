// Gradients of weights beside the sequence of the layer below.
//
// Note [Weights later]
// In the backward pass of a stack the layer below does not wait for the gradients of a layer's weights, and its sequence
// leaves SMs idle. So these products are put off until that sequence has been launched, and run beside it on a stream of
// their own, which the current one waits for at once. Autograd is given tensors that are filled then. They go through a
// node "WeightsLater", which runs after the layer below, does what is left, and passes them on: nobody else sees them before.
// Layers whose input another sequence has made have such nodes, if nothing stands between but what stacks put there. Hooks
// of modules and FSDP have nodes of their own where a module's input comes from, and find its weights' gradients when these
// run. And many calls on slices of one output would keep all of their gradients until that output's turn comes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/host/autograd.h"
#include "core/launch/device.h"

namespace lltm_jit {

// Whether the dispatcher would take these tensors only to autograd and to the kernels of a CPU or GPU.
template <typename... Args>
bool untransformed(const Args&... args) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const auto keys = (local.included_ | ... | as_tensor(args).key_set()) - local.excluded_;
  using Key = c10::DispatchKey;
  // A GPU's keys differ only in the backend. The third key is an absent argument's.
  const c10::DispatchKeySet usual(
      {Key::CPU, Key::AutogradCPU, Key::AutogradOther, Key::ADInplaceOrView, Key::BackendSelect});
  return (keys.has(Key::CPU) || keys.has(Key::CUDA)) &&
         (keys - usual).highestFunctionalityKey() == Key::Undefined;
}

// The products that an operator has put off.
struct PutOff : std::enable_shared_from_this<PutOff> {
  std::vector<std::function<void()>> products;
  std::optional<c10::Stream> stream;

  void add(std::function<void()> product);
  void finish();  // computes them, on the current stream
};

// For an operator whose input a sequence has made, perhaps by way of other operators; or null.
struct Later {
  std::shared_ptr<PutOff> put_off;
  uint64_t number = 0;  // of the nodes

  static Later after_sequence(const at::Tensor& tensor);
  // The tensor, as an input whose gradient may be put off.
  at::Tensor behind(const at::Tensor& weights) const;
};

// During its lifetime, the first kernel that asks may put off products.
struct PuttingOff {
  PuttingOff(const std::shared_ptr<PutOff>& put_off, const BackwardPass& pass);
  ~PuttingOff();
};
std::shared_ptr<PutOff> take_put_off();  // null if nothing may be put off
// Whether this thread's last backward pass of a sequence left room beside it.
bool& sequence_left_room();

// The product, computed at once, or a tensor of these sizes that will be filled later.
template <typename Product>
at::Tensor now_or_later(const std::shared_ptr<PutOff>& put_off, at::IntArrayRef sizes,
                        const at::Tensor& like, Product product) {
  if (!put_off) return product();
  const at::Tensor result = empty(c10::fromIntArrayRefSlow(sizes), like);
  put_off->add([result, product = std::move(product)] { at::Tensor(result).copy_(product()); });
  return result;
}

// Launches a sequence on the current stream, and the products that were put off beside it.
bool launch_beside(const std::function<bool()>& launch);

}  // namespace lltm_jit
