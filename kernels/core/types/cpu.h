// The CPU's C++ types of the element types.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include "core/math/scalar.h"

namespace lltm_jit {

template <>
struct OpMath<c10::Half> {
  using type = float;
};
template <>
struct OpMath<c10::BFloat16> {
  using type = float;
};

// Calls `function(scalar_t{})` with the floating-point type that `type` names.
template <typename Function>
void dispatch_floating(ElementType type, const Function& function) {
  switch (type) {
    case ElementType::Half:
      return function(c10::Half{});
    case ElementType::BFloat16:
      return function(c10::BFloat16{});
    case ElementType::Float:
      return function(float{});
    case ElementType::Double:
      return function(double{});
    default:
      TORCH_INTERNAL_ASSERT(false, "an integer reached a floating-point operator");
  }
}

}  // namespace lltm_jit
