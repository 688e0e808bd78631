// Products over all steps on a CPU, of floats or doubles: Note [Packed products].
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/launch/device.h"
#include "core/products/matrices.h"

namespace lltm_jit {

// The matrix if one of its strides is 1; else a copy.
inline at::Tensor dense_one_way(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 || matrix.stride(1) == 1 ? matrix : matrix.contiguous();
}

// Multiplies matrices that have a stride of 1; `initial` and C are dense.
template <typename T>
PackedProduct<T> packed_product(const at::Tensor& a, const at::Tensor& b,
                                const std::optional<at::Tensor>& initial, const at::Tensor& c) {
  return {.a = a.const_data_ptr<T>(),
          .a_row_stride = a.stride(0),
          .a_depth_stride = a.stride(1),
          .b = b.const_data_ptr<T>(),
          .b_depth_stride = b.stride(0),
          .b_column_stride = b.stride(1),
          .initial = initial ? initial->const_data_ptr<T>() : nullptr,
          .c = c.mutable_data_ptr<T>(),
          .c_stride = b.size(1),
          .rows = a.size(0),
          .columns = b.size(1),
          .depth = a.size(1)};
}

template <typename T>
at::Tensor multiply_on_cpu(const at::Tensor& a, const at::Tensor& b,
                           const std::optional<at::Tensor>& initial) {
  const at::Tensor c = empty({a.sym_size(0), b.sym_size(1)}, a);
  const at::Tensor left = dense_one_way(a), right = dense_one_way(b);
  const std::optional<at::Tensor> first =
      initial ? std::optional(initial->contiguous()) : std::nullopt;
  const auto product = packed_product<T>(left, right, first, c);
  multiply_packed(&product, 1);
  return c;
}

template <typename T>
void multiply_blocks_on_cpu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& blocks) {
  std::vector<PackedProduct<T>> products;
  for (int64_t head = 0; head < a.size(0); ++head) {
    const at::Tensor of_head = b.select(0, head);
    for (int64_t gate = 0; gate < a.size(1); ++gate) {
      products.push_back(packed_product<T>(a.select(0, head).select(0, gate), of_head, std::nullopt,
                                           blocks.select(0, head).select(0, gate)));
    }
  }
  multiply_packed(products.data(), static_cast<int64_t>(products.size()));
}

}  // namespace lltm_jit
