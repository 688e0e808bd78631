// How a build puts its operators' functions behind their schemas, and takes them away again.
//
// Note [Schemas outlive builds]
// The schemas are defined once a process, in Python. A build holds only implementations, in
// torch::Library objects that exist from register_ops() to release_ops(). So a rebuilt extension
// can replace a loaded one under every caller; a TORCH_LIBRARY static block could not, because
// torch aborts on the second one of a process.
#pragma once

#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "core/cuda/api.h"
#include "core/host/operator.h"

namespace lltm_jit {

// Note [Swap under running calls]
// The dispatcher keeps every kernel that is registered for an operator and a key, and takes the
// newest. So a build that is to replace another registers first, and the other then releases: no
// call meets an operator without kernels. torch warns of an override once a process. Ours is silent,
// and the warning is left for whoever overrides an operator by mistake.
class QuietOverride : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Overriding a previously registered kernel") == std::string::npos) {
      others_->process(warning);
    }
  }

 private:
  c10::WarningHandler* others_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard this_thread_{this};
  c10::WarningUtils::WarnAlways not_the_once_;
};

// Note [Strides of a formula]
// torch.compile plans memory by what the kernel gives on the meta device: results that are dense, in
// the memory format of the first argument. Where the formula runs in the kernel's place, its results
// may be views or keep the inputs' strides, so they are made like the kernel's.
template <typename... Args>
at::MemoryFormat format_of(const at::Tensor& first, const Args&...) {
  return first.suggest_memory_format();
}
template <typename... Args>
at::MemoryFormat format_of(const std::optional<at::Tensor>&, const Args&...) {
  return at::MemoryFormat::Contiguous;
}

inline at::Tensor in_format(at::MemoryFormat format, const at::Tensor& result) {
  return result.defined() ? result.contiguous(format) : result;
}
template <typename... Results>
std::tuple<Results...> in_format(at::MemoryFormat format, const std::tuple<Results...>& results) {
  return std::apply([&](const auto&... result) { return std::tuple(in_format(format, result)...); },
                    results);
}

// What the dispatcher calls. Each function knows its operator when it is compiled, and so keeps no
// state that a release could free under a call in another thread.
template <auto& op, typename Result, typename... Args>
struct AnyEntry {
  static constexpr bool kComposite = std::is_same_v<decltype(op), Composite<Result(Args...)>&>;

  static Result call(Args... args) {
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow(op.name, "")
                                   .template typed<Result(Args...)>();
    return handle.call(std::forward<Args>(args)...);
  }

  static Result formula(Args... args) { return op.formula(std::forward<Args>(args)...); }

  static Result autocast(Args... args) {
    return cast_and_call(kComposite ? op.formula : op.call, args...);
  }

  // The dispatcher comes to vmap before autocast.
  static Result vmap(Args... args) {
    return op.autocast ? cast_and_call(op.formula, args...) : op.formula(args...);
  }

 private:
  static Result cast_and_call(Result (*function)(Args...), const Args&... args) {
    const auto cast = op.autocast(args...);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return std::apply(function, cast);
  }
};

template <auto& op>
struct Entry;
template <typename Result, typename... Args, Composite<Result(Args...)>& op>
struct Entry<op> : AnyEntry<op, Result, Args...> {};
template <typename Result, typename... Args, Operator<Result(Args...)>& op>
struct Entry<op> : AnyEntry<op, Result, Args...> {
  static Result kernel(Args... args) { return op.kernel(std::forward<Args>(args)...); }

  static Result autograd(Args... args) { return op.autograd(std::forward<Args>(args)...); }

  static Result any_device(Args... args) {
    return in_format(format_of(args...), op.formula(args...));
  }
};

// One library for each dispatch key that operators implement, all of one namespace.
class OpLibraries {
 public:
  explicit OpLibraries(const char* op_namespace) : namespace_(op_namespace) {}

  // An operator; without `kernels` as on a device that has none of ours.
  template <auto& op>
  void add(bool kernels) {
    using Functions = Entry<op>;
    if (op.autocast) {
      autocast_cpu_.impl(op.name, TORCH_FN(Functions::autocast));
      autocast_cuda_.impl(op.name, TORCH_FN(Functions::autocast));
    }
    vmap_.impl(op.name, TORCH_FN(Functions::vmap));
    if constexpr (Functions::kComposite) {
      composite_.impl(op.name, TORCH_FN(Functions::formula));
    } else {
      if (kernels) cpu_.impl(op.name, TORCH_FN(Functions::kernel));
#ifdef LLTM_JIT_CUDA
      if (kernels) cuda_.impl(op.name, TORCH_FN(Functions::kernel));
#endif
      meta_.impl(op.name, TORCH_FN(Functions::kernel));
      any_device_.impl(op.name, TORCH_FN(Functions::any_device));
      autograd_.impl(op.name, TORCH_FN(Functions::autograd));
    }
  }

 private:
  torch::Library library(c10::DispatchKey key) const {
    return {torch::Library::IMPL, namespace_, key, __FILE__, __LINE__};
  }

  const char* namespace_;
  torch::Library cpu_ = library(c10::DispatchKey::CPU);
  torch::Library cuda_ = library(c10::DispatchKey::CUDA);
  torch::Library meta_ = library(c10::DispatchKey::Meta);
  torch::Library autograd_ = library(c10::DispatchKey::Autograd);
  torch::Library autocast_cpu_ = library(c10::DispatchKey::AutocastCPU);
  torch::Library autocast_cuda_ = library(c10::DispatchKey::AutocastCUDA);
  torch::Library vmap_ = library(c10::DispatchKey::FuncTorchBatched);
  torch::Library any_device_ = library(c10::DispatchKey::CompositeExplicitAutograd);
  torch::Library composite_ = library(c10::DispatchKey::CompositeImplicitAutograd);
};

}  // namespace lltm_jit
