// An operator as its own files see it: the functions behind its schema, and calls to it. library.h
// registers it with the dispatcher; only bindings.cpp includes that.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

namespace lltm_jit {

// Casts the arguments as autocast does.
template <typename... Args>
using AutocastFunction = std::tuple<std::decay_t<Args>...>(Args...);

template <typename Signature>
struct Operator;
template <typename Result, typename... Args>
struct Operator<Result(Args...)> {
  using Function = Result(Args...);

  const char* name;    // with the namespace: "lltm_jit::my_op"
  Function* kernel;    // on CPU and CUDA; on meta tensors it only allocates the results
  Function* formula;   // the same with operations of torch: on other devices, under vmap
  Function* autograd;  // records a call for the backward pass
  AutocastFunction<Args...>* autocast = nullptr;  // null where autocast changes nothing
  // Whether calls turn autocast off for everything below them. Under vmap the formula's operations go through
  // the dispatcher again, where a guard inside the formula no longer holds, and autocast would cast them.
  bool without_autocast = false;
  Function* call = nullptr;  // through the dispatcher; Module::add() sets it

  Result operator()(Args... args) const { return call(std::forward<Args>(args)...); }
};

// An operator that is composed of others on every device.
template <typename Signature>
struct Composite;
template <typename Result, typename... Args>
struct Composite<Result(Args...)> {
  using Function = Result(Args...);

  const char* name;
  Function* formula;
  AutocastFunction<Args...>* autocast = nullptr;
  Function* call = nullptr;

  Result operator()(Args... args) const { return call(std::forward<Args>(args)...); }
};

// Turns a function of a struct into a function of the struct's members, which is the form that a
// schema has. The signature is that of the function pointer it is assigned to.
template <auto* function>
struct Flat {
  template <typename Result, typename... Args>
  static Result call(Args... args) {
    return function({args...});
  }
  template <typename Result, typename... Args>
  using Pointer = Result (*)(Args...);
  template <typename Result, typename... Args>
  constexpr operator Pointer<Result, Args...>() const {
    return &call<Result, Args...>;
  }
};
template <auto* function>
inline constexpr Flat<function> flat;

}  // namespace lltm_jit
