// Argument checks that all operators share. Their messages have one form:
//   lltm_cell(): expected weights to have shape [3*hidden_size, ...] = [384, 160], but got [384, 128]
//
// Sizes are symbolic integers, so that the same checks serve real tensors, the meta device, and
// tracing by torch.compile and torch.export.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <initializer_list>

#include "core/math/scalar.h"

namespace lltm_jit {

// One argument of one call, with the name that messages use.
struct Argument {
  const char* function;
  const char* name;
  const at::Tensor& tensor;
};

// `shape` names the dimensions: "[batch_size, input_size]".
inline void check_rank(const Argument& arg, int64_t rank, const char* shape) {
  TORCH_CHECK(arg.tensor.dim() == rank, arg.function, "(): expected ", arg.name, " to have ", rank,
              " dimensions ", shape, ", but got shape ", arg.tensor.sym_sizes());
}

inline bool same_shape(c10::SymIntArrayRef actual, c10::SymIntArrayRef expected) {
  if (actual.size() != expected.size()) return false;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!actual[i].sym_eq(expected[i]).expect_true(__FILE__, __LINE__)) return false;
  }
  return true;
}

// `shape` names the dimensions of `expected`.
inline void check_shape(const Argument& arg, c10::SymIntArrayRef expected, const char* shape) {
  TORCH_CHECK(same_shape(arg.tensor.sym_sizes(), expected), arg.function, "(): expected ", arg.name,
              " to have shape ", shape, " = ", expected, ", but got ", arg.tensor.sym_sizes());
}

// Checks that the elements lie in memory as the strides say. Every check of a dtype begins with it.
inline void check_dense(const Argument& arg) {
  // torch.ops passes None as an undefined tensor.
  TORCH_CHECK(arg.tensor.defined(), arg.function, "(): expected ", arg.name,
              " to be a tensor, but got None");
  TORCH_CHECK(arg.tensor.layout() == at::kStrided, arg.function, "(): expected ", arg.name,
              " to be a dense tensor, but got layout ", arg.tensor.layout());
}

inline bool is_floating_point(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
         dtype == at::kDouble;
}

inline void check_floating_point(const Argument& arg) {
  check_dense(arg);
  const auto dtype = arg.tensor.scalar_type();
  TORCH_CHECK(is_floating_point(dtype), arg.function, "(): expected ", arg.name,
              " to have dtype Half, BFloat16, Float or Double, but got ", dtype);
}

inline void check_numeric(const Argument& arg) {
  check_dense(arg);
  const auto dtype = arg.tensor.scalar_type();
  const auto real = c10::isComplexType(dtype) ? c10::toRealValueType(dtype) : dtype;
  TORCH_CHECK(c10::isIntegralType(dtype, /*includeBool=*/false) || is_floating_point(real),
              arg.function, "(): expected ", arg.name, " to have a numeric dtype, but got ", dtype);
}

inline void check_same_dtype(const Argument& arg, const Argument& other) {
  check_dense(arg);
  TORCH_CHECK(arg.tensor.scalar_type() == other.tensor.scalar_type(), arg.function, "(): expected ",
              arg.name, " to have the dtype of ", other.name, " (", other.tensor.scalar_type(),
              "), but got ", arg.tensor.scalar_type());
}

inline void check_same_device(const Argument& arg, const Argument& other) {
  TORCH_CHECK(arg.tensor.device() == other.tensor.device(), arg.function, "(): expected ", arg.name,
              " to be on the device of ", other.name, " (", other.tensor.device(), "), but got ",
              arg.tensor.device());
}

// The states of a 16-bit cell may be float.
inline void check_state_dtype(const Argument& state, const Argument& other) {
  check_dense(state);
  const bool half = other.tensor.element_size() == 2;
  if (!half || state.tensor.scalar_type() != at::kFloat) check_same_dtype(state, other);
}

inline void check_like(const Argument& arg, const Argument& other, c10::SymIntArrayRef expected,
                       const char* shape) {
  check_same_dtype(arg, other);
  check_same_device(arg, other);
  check_shape(arg, expected, shape);
}

// The floating-point element type of a checked tensor.
inline ElementType floating_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return ElementType::Half;
    case at::kBFloat16:
      return ElementType::BFloat16;
    case at::kFloat:
      return ElementType::Float;
    case at::kDouble:
      return ElementType::Double;
    default:
      TORCH_INTERNAL_ASSERT(false, "not a floating-point dtype: ", dtype);
  }
}

}  // namespace lltm_jit
