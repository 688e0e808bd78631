// The operations of torch that formulas use and at::Tensor does not have as members. torch's own
// headers for them (ATen/TensorOperators.h, ATen/ops/cat.h) take seconds to compile.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lltm_jit {

inline at::Tensor operator+(const at::Tensor& a, const at::Tensor& b) { return a.add(b); }
inline at::Tensor operator+(const at::Tensor& a, const at::Scalar& b) { return a.add(b); }
inline at::Tensor operator-(const at::Tensor& a, const at::Tensor& b) { return a.sub(b); }
inline at::Tensor operator-(const at::Scalar& a, const at::Tensor& b) { return (-b).add(a); }
inline at::Tensor operator*(const at::Tensor& a, const at::Tensor& b) { return a.mul(b); }
inline at::Tensor operator*(const at::Scalar& a, const at::Tensor& b) { return b.mul(a); }

at::Tensor cat(at::TensorList tensors, int64_t dim);
at::Tensor stacked(at::TensorList tensors);  // in a new first dimension

// While such a guard lives, operations compute in the dtypes that they are given, because autocast
// has cast the arguments already. Under vmap the guard covers only the formula's own operations.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

inline at::Tensor elu(const at::Tensor& x) { return at::_ops::elu::call(x, 1, 1, 1); }

// Copies `result` to the memory format of `input`, and never returns a view of `input`: changing
// one in place must not change the other. It permutes, because vmap refuses other memory formats.
inline at::Tensor result_like(const at::Tensor& input, const at::Tensor& result) {
  if (result.is_same(input)) return result_like(input, result.clone());
  switch (input.suggest_memory_format()) {
    case at::MemoryFormat::ChannelsLast:
      return result.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
    case at::MemoryFormat::ChannelsLast3d:
      return result.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
    default:
      return result.contiguous();
  }
}

}  // namespace lltm_jit
