// Note [Small products of all steps] for tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/host/checks.h"
#include "core/launch/device.h"
#include "rnn/sequence/all_steps/small/kernels.h"

namespace lltm_jit {

#ifdef LLTM_JIT_CUDA
// The arguments of A B without its results, if the kernel supports them. If the depth is inside neither
// factor, some rows of B may lie elsewhere, and the others may begin `from` elements further on in B.
inline std::optional<SmallProductArgs> small_product(const at::Tensor& a, const at::Tensor& b,
                                                     const SmallRows& rows_of_b = {},
                                                     int64_t from = 0) {
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  if (!a.is_cuda() || a.scalar_type() == at::kDouble || depth > kMostSmallDepth) return {};
  const auto factor = [](const at::Tensor& matrix, int64_t vectors_apart, int64_t depth_apart) {
    const bool depth_inside = depth_apart == 1;
    return SmallFactor{matrix.const_data_ptr(), depth_inside ? vectors_apart : depth_apart,
                       depth_inside};
  };
  if ((a.stride(0) != 1 && a.stride(1) != 1) || (b.stride(0) != 1 && b.stride(1) != 1)) return {};
  SmallProductArgs args{.a = factor(a, a.stride(0), a.stride(1)),
                        .b = factor(b, b.stride(1), b.stride(0)),
                        .rows = rows,
                        .columns = columns,
                        .depth = depth,
                        .type = floating_type(a.scalar_type()),
                        .rows_of_b = rows_of_b};
  args.b.numbers = static_cast<const char*>(args.b.numbers) + from * b.element_size();
  return small_product_pays(args) ? std::optional(args) : std::nullopt;
}

inline void multiply_small(const SmallProducts& all) {
  C10_CUDA_CHECK(launch_small_products(all, c10::cuda::getCurrentCUDAStream()));
}
#endif

// A B, plus `initial` in each row; an undefined tensor if the kernel does not support it. If `sums`
// is not null and the depth is inside neither factor, it gets the sums of A's rows.
inline at::Tensor multiply_small(const at::Tensor& a, const at::Tensor& b,
                                 const std::optional<at::Tensor>& initial,
                                 at::Tensor* sums = nullptr) {
#ifdef LLTM_JIT_CUDA
  auto args = small_product(a, b);
  if (!args) return {};
  const at::Tensor results = empty({args->rows, args->columns}, a);
  const std::optional<at::Tensor> first = lltm_jit::dense(initial);
  args->initial = data_or_null(first);
  args->results = results.mutable_data_ptr();
  if (sums && !args->a.depth_inside && !args->b.depth_inside) {
    *sums = empty({args->rows}, a);
    args->sums = sums->mutable_data_ptr();
  }
  multiply_small({{*args}, 1});
  return results;
#else
  return {};
#endif
}

}  // namespace lltm_jit
