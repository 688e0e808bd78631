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

// While such a guard lives, operations compute in the dtypes that they are given, because autocast
// has cast the arguments already. Under vmap the guard covers only the formula's own operations.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

inline at::Tensor elu(const at::Tensor& x) { return at::_ops::elu::call(x, 1, 1, 1); }

}  // namespace lltm_jit
