#include "rnn/sequence/sequence_products.h"

#include <algorithm>

#include "core/host/checks.h"
#include "core/host/device.h"
#include "rnn/sequence/float_product.h"

#ifdef LLTM_JIT_CUDA
#include <ATen/Context.h>
#endif

namespace lltm_jit {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// With one stride of 1.
Tensor dense_one_way(const Tensor& matrix) {
  return matrix.stride(0) == 1 || matrix.stride(1) == 1 ? matrix : matrix.contiguous();
}

Tensor multiply_on_cpu(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  const Tensor c = empty({a.sym_size(0), b.sym_size(1)}, a);
  const Tensor left = dense_one_way(a), right = dense_one_way(b);
  const OptionalTensor first = initial ? OptionalTensor(initial->contiguous()) : std::nullopt;
  multiply_cpu({.type = floating_type(a.scalar_type()),
                .a = left.const_data_ptr(),
                .a_row_stride = left.stride(0),
                .a_depth_stride = left.stride(1),
                .b = right.const_data_ptr(),
                .b_depth_stride = right.stride(0),
                .b_column_stride = right.stride(1),
                .initial = first ? first->const_data_ptr() : nullptr,
                .c = c.mutable_data_ptr(),
                .rows = a.size(0),
                .columns = b.size(1),
                .depth = a.size(1)});
  return c;
}

#ifdef LLTM_JIT_CUDA
// Vectors, the rows of A or the columns of B, as float_product.h takes them.
FloatFactor float_factor(const Tensor& vectors) {
  const bool depth_inside = vectors.stride(1) == 1;
  return {.numbers = static_cast<const float*>(vectors.const_data_ptr()),
          .vectors = vectors.size(0),
          .depth = vectors.size(1),
          .row_stride = vectors.stride(depth_inside ? 0 : 1),
          .depth_inside = depth_inside};
}

// Below that many multiplications the kernels around a product take as long as is gained.
constexpr int64_t kManyProducts = int64_t(1) << 29;

bool pays_in_parts(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != at::kFloat || a.size(0) * a.size(1) * b.size(1) < kManyProducts) {
    return false;
  }
  const auto one_stride_is_1 = [](const Tensor& t) { return t.stride(0) == 1 || t.stride(1) == 1; };
  if (!one_stride_is_1(a) || !one_stride_is_1(b)) return false;
  // One product of TF32, if its user allows it, is quicker than three of halves.
  const auto precision =
      at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  if (precision == at::Float32Precision::TF32) return false;
  bool runs = false;
  C10_CUDA_CHECK(float_product_runs(float_factor(a), float_factor(b.t()), &runs));
  return runs;
}

// results = or += A B, plus `initial` in each row.
void multiply_parts(const Tensor& a, const Tensor& b, const float* initial, bool adds,
                    const Tensor& results) {
  const int64_t rows = a.size(0), columns = b.size(1);
  FloatProductArgs args{.a = float_factor(a),
                        .b = float_factor(b.t()),
                        .initial = initial,
                        .adds = adds,
                        .results = static_cast<float*>(results.mutable_data_ptr())};
  C10_CUDA_CHECK(float_product_splits(args.a, args.b, &args.splits));
  const Tensor magnitudes = a.new_zeros({rows + columns}, at::kInt);
  const Tensor parts = a.new_empty({float_parts_bytes(args.b)}, at::kByte);
  const Tensor sums = args.splits > 1 ? a.new_empty({args.splits, rows, columns}) : Tensor();
  args.magnitudes = static_cast<uint32_t*>(magnitudes.mutable_data_ptr());
  args.b_parts = parts.mutable_data_ptr();
  args.sums = sums.defined() ? static_cast<float*>(sums.mutable_data_ptr()) : nullptr;
  C10_CUDA_CHECK(launch_float_product(args, c10::cuda::getCurrentCUDAStream()));
}

Tensor multiply_in_parts(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  // B's parts are made of at most so many numbers at a time, however long the sequence.
  constexpr int64_t kNumbersAtOnce = int64_t(1) << 25;
  const Tensor c = empty({a.sym_size(0), b.sym_size(1)}, a);
  const OptionalTensor first = initial ? OptionalTensor(initial->clone()) : std::nullopt;
  const auto* first_data = first ? static_cast<const float*>(first->const_data_ptr()) : nullptr;
  const int64_t depth = a.size(1);
  const int64_t piece = std::max(kNumbersAtOnce / b.size(1) / 64 * 64, int64_t(64));
  for (int64_t from = 0; from < depth; from += piece) {
    const int64_t count = std::min(piece, depth - from);
    multiply_parts(a.narrow(1, from, count), b.narrow(0, from, count),
                   from == 0 ? first_data : nullptr, /*adds=*/from > 0, c);
  }
  return c;
}
#endif

}  // namespace

Tensor multiply_steps(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  const auto dtype = a.scalar_type();
  if (a.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble) && a.size(1) > 0) {
    return multiply_on_cpu(a, b, initial);
  }
#ifdef LLTM_JIT_CUDA
  if (a.is_cuda() && pays_in_parts(a, b)) return multiply_in_parts(a, b, initial);
#endif
  return initial ? initial->addmm(a, b) : a.mm(b);
}

}  // namespace lltm_jit
