// Products of the library, cuBLAS or MKL, with the caller's precision: torch's functions follow
// torch.backends.cuda.matmul, a setting of other products.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lltm_jit {

// C = A B, of matrices or of a batch of them. tf32: whether floats may be rounded to TF32 on a GPU; they are if
// that saves time. C is on the device of A and B, and its rows are dense.
void multiply_by_library(const at::Tensor& a, const at::Tensor& b, bool tf32, at::Tensor& c);
// The same of batches on a GPU, in 16 bits or in floats that are rounded to TF32; C is float.
void multiply_to_floats(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);
// C += A B.
void add_by_library(const at::Tensor& a, const at::Tensor& b, bool tf32, at::Tensor& c);
// A B, plus `initial` in each row, of matrices.
at::Tensor product_of_library(const at::Tensor& a, const at::Tensor& b, bool tf32,
                              const std::optional<at::Tensor>& initial = std::nullopt);

}  // namespace lltm_jit
