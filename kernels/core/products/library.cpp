#include "core/products/library.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/mm_ops.h>

#include <algorithm>

#include "core/launch/api.h"

#ifdef LLTM_JIT_CUDA
// cuBLAS's headers may be missing, and so may the headers of torch that include them. So the
// functions are declared here. Each version of torch has one of the two overloads.
extern "C" {
struct cublasContext;
[[gnu::weak]] int cublasGemmStridedBatchedEx(
    cublasContext* handle, int operation_a, int operation_b, int rows, int columns, int depth,
    const void* factor, const void* a, int a_type, int a_stride, long long a_of_batch,
    const void* b, int b_type, int b_stride, long long b_of_batch, const void* rest, void* c,
    int c_type, int c_stride, long long c_of_batch, int batches, int compute, int algorithm);
}
namespace at::cuda {
[[gnu::weak]] cublasContext* getCurrentCUDABlasHandle();
[[gnu::weak]] cublasContext* getCurrentCUDABlasHandle(bool setup);
}  // namespace at::cuda
#endif

namespace lltm_jit {
namespace {

using at::Tensor;

bool is_float_on_gpu(const Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_cuda();
}

// With fewer multiplications, rounding to TF32 saves no time.
bool rounds(const Tensor& a, const Tensor& b, bool tf32) {
  constexpr int64_t kManyProducts = int64_t(1) << 25;
  return tf32 && is_float_on_gpu(a) && a.numel() * b.size(-1) >= kManyProducts;
}

#ifdef LLTM_JIT_CUDA
// A row-major operand for cuBLAS, which is column-major: the matrix or its transpose is dense.
struct Operand {
  Tensor matrix;
  int transposed;
  int64_t stride, of_batch;

  explicit Operand(const Tensor& given) : matrix(given) {
    const auto fits = [&](int64_t inside, int64_t outside) {
      return matrix.stride(inside) == 1 &&
             matrix.stride(outside) >= std::max<int64_t>(matrix.size(inside), 1);
    };
    if (!fits(-1, -2) && !fits(-2, -1)) matrix = matrix.contiguous();
    const bool dense_rows = fits(-1, -2);
    transposed = dense_rows ? 0 : 1;
    stride = matrix.stride(dense_rows ? -2 : -1);
    of_batch = matrix.dim() == 3 ? matrix.stride(0) : 0;
  }
};

// The number that CUDA's library_types.h gives a type.
int library_type(const Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf ? 2 : tensor.scalar_type() == at::kBFloat16 ? 14 : 0;
}

// C = A B + `rest` C, in 16 bits or in floats rounded to TF32; C may be float. False if cuBLAS cannot do it.
bool multiply_in_library(const Tensor& a, const Tensor& b, float rest, Tensor& c) {
  const Operand left(a), right(b);
  const int64_t largest =
      std::max({a.size(-2), a.size(-1), b.size(-1), left.stride, right.stride, c.stride(-2)});
  cublasContext* (*plain)() = at::cuda::getCurrentCUDABlasHandle;
  cublasContext* (*with_setup)(bool) = at::cuda::getCurrentCUDABlasHandle;
  if (largest > INT32_MAX || !cublasGemmStridedBatchedEx || (!plain && !with_setup)) return false;
  constexpr int kInFloat = 68, kRoundedToTf32 = 77,
                kAnyAlgorithm = -1;  // the names in cublas_api.h
  const float one = 1;
  const int rows = int(a.size(-2)), depth = int(a.size(-1)), columns = int(b.size(-1));
  const int type = library_type(a);
  const int status = cublasGemmStridedBatchedEx(
      plain ? plain() : with_setup(true), right.transposed, left.transposed, columns, rows, depth,
      &one, right.matrix.const_data_ptr(), type, int(right.stride), right.of_batch,
      left.matrix.const_data_ptr(), type, int(left.stride), left.of_batch, &rest,
      c.mutable_data_ptr(), library_type(c), int(c.stride(-2)), c.dim() == 3 ? c.stride(0) : 0,
      a.dim() == 3 ? int(a.size(0)) : 1, a.element_size() == 4 ? kRoundedToTf32 : kInFloat,
      kAnyAlgorithm);
  TORCH_CHECK(status == 0, "a product of cuBLAS failed with status ", status);
  return true;
}
#else
bool multiply_in_library(const Tensor&, const Tensor&, float, Tensor&) { return false; }
#endif

// Turns TF32 off, unless it is wanted.
struct Precision {
  std::optional<at::NoTF32Guard> exact;

  explicit Precision(bool tf32) {
    if (!tf32) exact.emplace();
  }
};

// C = A B + `rest` C, where `rest` is 0 or 1.
void multiply(const Tensor& a, const Tensor& b, bool tf32, float rest, Tensor& c) {
  if (rounds(a, b, tf32) && multiply_in_library(a, b, rest, c)) return;
  const Precision precision(tf32);
  if (a.dim() == 3) {
    at::_ops::baddbmm_out::call(c, a, b, rest, 1, c);
  } else {
    at::_ops::addmm_out::call(c, a, b, rest, 1, c);
  }
}

}  // namespace

void multiply_by_library(const Tensor& a, const Tensor& b, bool tf32, Tensor& c) {
  multiply(a, b, tf32, 0, c);
}

void add_by_library(const Tensor& a, const Tensor& b, bool tf32, Tensor& c) {
  multiply(a, b, tf32, 1, c);
}

void multiply_to_floats(const Tensor& a, const Tensor& b, Tensor& c) {
  if (!multiply_in_library(a, b, 0, c)) c.copy_(at::_ops::bmm::call(a, b));
}

Tensor product_of_library(const Tensor& a, const Tensor& b, bool tf32,
                          const std::optional<Tensor>& initial) {
  if (rounds(a, b, tf32)) {
    Tensor c = initial ? initial->expand({a.size(0), b.size(1)}).clone(at::MemoryFormat::Contiguous)
                       : a.new_empty({a.size(0), b.size(1)});
    if (multiply_in_library(a, b, initial ? 1 : 0, c)) return c;
  }
  const Precision precision(tf32);
  if (!initial) return at::_ops::mm::call(a, b);
  // A product with a fused bias ignores NoTF32Guard.
  if (is_float_on_gpu(a) && !tf32) return at::_ops::mm::call(a, b).add_(*initial);
  return at::_ops::addmm::call(*initial, a, b, 1, 1);
}

}  // namespace lltm_jit
