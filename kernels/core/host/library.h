// How a build registers its functions for its operators' schemas, and releases them again.
//
// Note [Schemas outlive builds]
// The schemas are defined once a process, in Python. A build holds only implementations, which the
// dispatcher has from register_ops() to release_ops(). So a rebuilt extension can replace a loaded
// one under all callers. A TORCH_LIBRARY static block could not, because torch aborts when a
// process runs a second one.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/host/operator.h"
#include "core/launch/api.h"

namespace lltm_jit {

// Note [Swap under running calls]
// The dispatcher keeps every kernel that is registered for an operator and a key, and calls the
// newest. So a new build registers first, and then the old one releases: no call meets an operator
// without kernels. torch warns of an override once a process. Here the warning is silenced, so that
// it still comes if somebody overrides an operator by mistake.
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
// torch.compile plans memory by the kernel's results on the meta device, which are dense, in the
// memory format of the first argument. A formula's results may be views or keep the inputs'
// strides, so where it replaces the kernel they are copied to the kernel's layout.
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

// The functions that the dispatcher calls, beside those of the operator itself.
template <auto& op, typename Function = typename std::decay_t<decltype(op)>::Function>
struct Entry;
template <auto& op, typename Result, typename... Args>
struct Entry<op, Result(Args...)> {
  static constexpr bool kComposite = std::is_same_v<decltype(op), Composite<Result(Args...)>&>;

  static Result call(Args... args) {
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow(op.name, "")
                                   .template typed<Result(Args...)>();
    std::optional<c10::impl::ExcludeDispatchKeyGuard> no_autocast;
    if constexpr (!kComposite) {
      if (op.without_autocast) no_autocast.emplace(c10::autocast_dispatch_keyset);
    }
    return handle.call(std::forward<Args>(args)...);
  }

  static Result autocast(Args... args) {
    return cast_and_call(kComposite ? op.formula : op.call, args...);
  }

  // The dispatcher reaches vmap before autocast.
  static Result vmap(Args... args) {
    return op.autocast ? cast_and_call(op.formula, args...) : op.formula(args...);
  }

  // A composite has no use for it.
  static Result any_device(Args... args) {
    return in_format(format_of(args...), op.formula(args...));
  }

 private:
  static Result cast_and_call(Result (*function)(Args...), const Args&... args) {
    const auto cast = op.autocast(args...);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return std::apply(function, cast);
  }
};

// Registers a function with the dispatcher.
using Registration = std::function<c10::RegistrationHandleRAII()>;

// Note [One wrapper a signature]
// The dispatcher's wrappers of functions are templates, which take most of the time to compile. They
// depend on the function's type alone, so operators of one signature share them. They keep the function
// in an object that the dispatcher counts references to. The family's list, which is never destroyed,
// refers to each of these objects too, so that no release frees one under a call in another thread.
template <typename Result, typename... Args>
Registration registration(const char* op_namespace, const char* name, c10::DispatchKey key,
                          Result (*function)(Args...)) {
  using Function = Result(Args...);
  const auto kernel = c10::KernelFunction::makeFromUnboxedRuntimeFunction(function);
  return [=] {
    auto schema = std::make_unique<c10::FunctionSchema>(
        c10::inferFunctionSchemaFlattenedReturns<Function*>());
    return c10::Dispatcher::singleton().registerImpl({name, ""}, key, kernel,
                                                     c10::impl::CppSignature::make<Function>(),
                                                     std::move(schema), op_namespace);
  };
}

// The operators of a family. It knows whether they are registered.
class Family {
 public:
  explicit Family(const char* op_namespace) : namespace_(op_namespace) {}

  template <auto& op>
  void add() {
    using Functions = Entry<op>;
    using Key = c10::DispatchKey;
    op.call = Functions::call;
    const auto add = [&](std::vector<Registration>& list, Key key, auto* function) {
      list.push_back(registration(namespace_, op.name, key, function));
    };
    if (op.autocast) {
      add(always_, Key::AutocastCPU, Functions::autocast);
      add(always_, Key::AutocastCUDA, Functions::autocast);
    }
    add(always_, Key::FuncTorchBatched, Functions::vmap);
    if constexpr (Functions::kComposite) {
      add(always_, Key::CompositeImplicitAutograd, op.formula);
    } else {
      add(kernels_, Key::CPU, op.kernel);
#ifdef LLTM_JIT_CUDA
      add(kernels_, Key::CUDA, op.kernel);
#endif
      add(always_, Key::Meta, op.kernel);
      add(always_, Key::CompositeExplicitAutograd, Functions::any_device);
      add(always_, Key::Autograd, op.autograd);
    }
  }

  // Without `kernels` the operators behave as on a device that has no kernels of this package.
  void register_ops(bool kernels) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const QuietOverride quiet;
    Handles handles;
    for (const auto& add : always_) handles.push_back(add());
    if (kernels) {
      for (const auto& add : kernels_) handles.push_back(add());
    }
    registered_.swap(handles);
  }

  void release_ops() {
    const std::lock_guard<std::mutex> lock(mutex_);
    registered_.clear();
  }

 private:
  using Handles = std::vector<c10::RegistrationHandleRAII>;

  const char* namespace_;  // the name in the dispatcher's dumps of registrations
  std::vector<Registration> always_, kernels_;
  std::mutex mutex_;
  Handles registered_;
};

}  // namespace lltm_jit
