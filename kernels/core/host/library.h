// How a build puts its kernels behind the operators' schemas, and takes them away again.
//
// Note [Schemas outlive builds]
// The schemas are defined once a process, in Python. A build holds only implementations, in
// torch::Library objects that exist from register_ops() to release_ops(). So a rebuilt extension
// can replace a loaded one under every caller; a TORCH_LIBRARY static block could not, because
// torch aborts on the second one of a process.
#pragma once

#include <torch/library.h>

#include "core/cuda/api.h"

namespace lltm_jit {

// One library for each dispatch key that operators implement.
struct OpLibraries {
  torch::Library cpu{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library cuda{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::CUDA, __FILE__, __LINE__};
  torch::Library meta{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::Meta, __FILE__, __LINE__};
  torch::Library autograd{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::Autograd, __FILE__,
                          __LINE__};
  torch::Library autocast_cpu{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::AutocastCPU,
                              __FILE__, __LINE__};
  torch::Library autocast_cuda{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::AutocastCUDA,
                               __FILE__, __LINE__};
  // Under vmap an operator becomes its ATen formula, each op of which has a batching rule.
  torch::Library vmap{torch::Library::IMPL, "lltm_jit", c10::DispatchKey::FuncTorchBatched,
                      __FILE__, __LINE__};
  // The ATen formula on devices that have no kernel of ours: differentiable ops of torch inside.
  torch::Library any_device{torch::Library::IMPL, "lltm_jit",
                            c10::DispatchKey::CompositeExplicitAutograd, __FILE__, __LINE__};
  torch::Library composite{torch::Library::IMPL, "lltm_jit",
                           c10::DispatchKey::CompositeImplicitAutograd, __FILE__, __LINE__};

  // An operator with a kernel for CPU, CUDA and meta tensors, and an ATen formula for the others
  // and for vmap.
  template <auto* kernel, auto* formula, auto* autograd>
  void add(const char* name) {
    cpu.impl(name, TORCH_FN(kernel));
#ifdef LLTM_JIT_CUDA
    cuda.impl(name, TORCH_FN(kernel));
#endif
    meta.impl(name, TORCH_FN(kernel));
    any_device.impl(name, TORCH_FN(formula));
    vmap.impl(name, TORCH_FN(formula));
    this->autograd.impl(name, TORCH_FN(autograd));
  }
};

// Calls the operator `name` of schema type `Signature` through the dispatcher.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace lltm_jit
