// Gradients of weights that are deferred, to overlap with the sequence of the layer below.
//
// Note [Weights later]
// In a stack's backward pass, the layer below needs no gradients of this layer's weights, and its sequence leaves SMs
// idle. So these products are deferred until that sequence has been launched, and overlap with it on a stream of their
// own, for which the current stream waits at once. Autograd gets tensors that are filled then. They go through a node
// "WeightsLater", which runs after the layer below, computes what is left, and passes them on: nobody sees them before.
// Only layers whose input comes from a sequence, through nothing but a stack's own operators, have such nodes. Hooks of
// modules and FSDP add nodes before a module's input, which must find its weights' gradients when they run; and many
// calls on slices of one output would keep all their gradients until that output's turn.
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

// Whether the dispatcher would take these tensors only to autograd and the kernels of a CPU or GPU.
template <typename... Args>
bool untransformed(const Args&... args) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const auto keys = (local.included_ | ... | as_tensor(args).key_set()) - local.excluded_;
  using Key = c10::DispatchKey;
  // The keys of a GPU differ only in the backend. The third key is that of an absent argument.
  const c10::DispatchKeySet usual(
      {Key::CPU, Key::AutogradCPU, Key::AutogradOther, Key::ADInplaceOrView, Key::BackendSelect});
  return (keys.has(Key::CPU) || keys.has(Key::CUDA)) &&
         (keys - usual).highestFunctionalityKey() == Key::Undefined;
}

// The products that an operator has deferred.
struct PutOff : std::enable_shared_from_this<PutOff> {
  std::vector<std::function<void()>> products;
  std::optional<c10::Stream> stream;

  void add(std::function<void()> product);
  void finish();  // computes the products on the current stream
};

// Made for an operator whose input comes from a sequence, perhaps through other operators; else null.
struct Later {
  std::shared_ptr<PutOff> put_off;
  uint64_t number = 0;  // of the WeightsLater nodes

  static Later after_sequence(const at::Tensor& tensor);
  // An alias of the weights, whose gradient may be deferred.
  at::Tensor behind(const at::Tensor& weights) const;
};

// During its lifetime, the first kernel that asks may defer products.
struct PuttingOff {
  PuttingOff(const std::shared_ptr<PutOff>& put_off, const BackwardPass& pass);
  ~PuttingOff();
};
std::shared_ptr<PutOff> take_put_off();  // null if nothing may be deferred
// Whether this thread's last backward pass of a sequence left SMs idle.
bool& sequence_left_room();

// The product, computed at once, or a tensor of these sizes that a deferred product fills later.
template <typename Product>
at::Tensor now_or_later(const std::shared_ptr<PutOff>& put_off, at::IntArrayRef sizes,
                        const at::Tensor& like, Product product) {
  if (!put_off) return product();
  const at::Tensor result = empty(c10::fromIntArrayRefSlow(sizes), like);
  put_off->add([result, product = std::move(product)] { at::Tensor(result).copy_(product()); });
  return result;
}

// Launches a sequence on the current stream, and lets the deferred products overlap with it.
bool launch_beside(const std::function<bool()>& launch);

}  // namespace lltm_jit
