// Matrix products (GEMMs) by the library, cuBLAS or MKL. The caller chooses the precision, because
// torch's functions follow torch.backends.cuda.matmul, which is meant for other products.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lltm_jit {

// C = A B, for matrices or batches of them. tf32 allows rounding floats to TF32 on a GPU, which is
// done if it saves time. C is on the device of A and B, and its rows are dense.
void multiply_by_library(const at::Tensor& a, const at::Tensor& b, bool tf32, at::Tensor& c);
// The same for batches on a GPU, in 16 bits or in floats rounded to TF32; C is float.
void multiply_to_floats(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);
// C += A B.
void add_by_library(const at::Tensor& a, const at::Tensor& b, bool tf32, at::Tensor& c);
// A B, plus `initial` in each row. A and B are matrices.
at::Tensor product_of_library(const at::Tensor& a, const at::Tensor& b, bool tf32,
                              const std::optional<at::Tensor>& initial = std::nullopt);

}  // namespace lltm_jit
