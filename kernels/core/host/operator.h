// An operator as its own files see it: the functions behind its schema, and calls to it. What
// registers it with the dispatcher is in library.h, which only bindings.cpp includes.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

namespace lltm_jit {

// What autocast makes of the arguments.
template <typename... Args>
using AutocastFunction = std::tuple<std::decay_t<Args>...>(Args...);

template <typename Signature>
struct Operator;
template <typename Result, typename... Args>
struct Operator<Result(Args...)> {
  using Function = Result(Args...);

  const char* name;    // with the namespace: "lltm_jit::my_op"
  Function* kernel;    // on CPU and CUDA; on meta tensors the results without their values
  Function* formula;   // the same in operations of torch: on other devices, under vmap
  Function* autograd;  // records a call for the backward pass
  AutocastFunction<Args...>* autocast = nullptr;  // null where autocast changes nothing
  // Calls go without autocast, which would cast inside of the formula under vmap, too: that is another
  // turn of the dispatcher, where a guard of the formula's own no longer holds.
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

// A function of a struct as a function of the struct's members, which is what a schema has: of any
// signature that it is assigned to.
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
