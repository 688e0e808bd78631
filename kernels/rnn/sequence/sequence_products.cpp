#include "rnn/sequence/sequence_products.h"

#include <ATen/TensorOperators.h>

#include "core/host/checks.h"
#include "core/host/device.h"
#include "rnn/sequence/float_parts.h"

#ifdef LLTM_JIT_CUDA
#include <ATen/Context.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/zeros.h>
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
// Of a product, in pieces of which none is so deep that truncated sums lose much.
struct Depth {
  int64_t pieces, piece;

  explicit Depth(int64_t depth) {
    constexpr int64_t kDeepest = 512, kStep = 32;
    pieces = (depth + kDeepest - 1) / kDeepest;
    piece = ((depth + pieces - 1) / pieces + kStep - 1) / kStep * kStep;
  }
};

// Vectors, the rows of A or the columns of B, as float_parts.h takes them.
class Factor {
 public:
  Factor(const Tensor& vectors, bool is_left)
      : vectors_(vectors), depth_inside_(vectors.stride(1) == 1), is_left_(is_left) {}

  // Rows of whole accesses, and of sizes that the library has its best kernels for.
  bool fits() const {
    const Tensor rows = in_memory();
    return rows.stride(1) == 1 && rows.size(1) % 8 == 0 && rows.stride(0) % 4 == 0 &&
           reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0;
  }
  // The parts' tensor, [pieces, vectors, three times a piece's depth], and what writes it.
  Tensor parts(const Depth& depth, const Tensor& magnitudes, FloatFactor& factor) const {
    const Tensor rows = in_memory();
    const int64_t height = rows.size(0), width = rows.size(1);
    const int64_t deep = kFloatParts * depth.piece;
    const Tensor halves = depth_inside_ ? rows.new_empty({height, depth.pieces, deep}, at::kHalf)
                                        : rows.new_empty({depth.pieces, deep, width}, at::kHalf);
    factor = {.source = static_cast<const float*>(rows.const_data_ptr()),
              .rows = height,
              .columns = width,
              .row_stride = rows.stride(0),
              .depth_inside = depth_inside_,
              .is_left = is_left_,
              .pieces = depth.pieces,
              .piece = depth.piece,
              .magnitudes = static_cast<uint32_t*>(magnitudes.mutable_data_ptr()),
              .parts = halves.mutable_data_ptr()};
    return depth_inside_ ? halves.transpose(0, 1) : halves.transpose(1, 2);
  }

 private:
  Tensor in_memory() const { return depth_inside_ ? vectors_ : vectors_.t(); }

  Tensor vectors_;
  bool depth_inside_, is_left_;
};

// Below that many multiplications the kernels around a product take as long as is gained.
constexpr int64_t kManyProducts = int64_t(1) << 29;

bool pays_in_parts(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != at::kFloat || a.size(0) * a.size(1) * b.size(1) < kManyProducts ||
      b.size(1) % 8 != 0 || !Factor(a, true).fits() || !Factor(b.t(), false).fits()) {
    return false;
  }
  // One product of TF32, if its user allows it, is quicker than three of halves.
  const auto precision =
      at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, a.get_device()));
  return precision != at::Float32Precision::TF32 && major >= 8;
}

// results = or += A B, plus `initial` in each row.
void multiply_parts(const Tensor& a, const Tensor& b, const float* initial, bool adds,
                    const Tensor& results) {
  const int64_t rows = a.size(0), columns = b.size(1);
  const Tensor magnitudes = at::zeros({rows + columns}, a.options().dtype(at::kInt));
  const Tensor of_rows = magnitudes.narrow(0, 0, rows);
  const Tensor of_columns = magnitudes.narrow(0, rows, columns);
  SplitFactorsArgs split{};
  const Depth depth(a.size(1));
  const Tensor left = Factor(a, true).parts(depth, of_rows, split.factors[0]);
  const Tensor right = Factor(b.t(), false).parts(depth, of_columns, split.factors[1]);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(launch_split_factors(split, stream));
  const Tensor sums = at::_ops::bmm_dtype::call(left, right.transpose(1, 2), at::kFloat);
  C10_CUDA_CHECK(launch_unscale({.sums = static_cast<const float*>(sums.const_data_ptr()),
                                 .pieces = depth.pieces,
                                 .row_magnitudes = split.factors[0].magnitudes,
                                 .column_magnitudes = split.factors[1].magnitudes,
                                 .initial = initial,
                                 .adds = adds,
                                 .results = static_cast<float*>(results.mutable_data_ptr()),
                                 .rows = rows,
                                 .columns = columns},
                                stream));
}

Tensor multiply_in_parts(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  // Sums and parts of so many numbers at once, so that long sequences need no more memory.
  constexpr int64_t kNumbersAtOnce = int64_t(1) << 25;
  const Tensor c = empty({a.sym_size(0), b.sym_size(1)}, a);
  const OptionalTensor first = initial ? OptionalTensor(initial->clone()) : std::nullopt;
  const auto* first_data = first ? static_cast<const float*>(first->const_data_ptr()) : nullptr;
  const bool along_depth = a.stride(1) != 1;
  const int64_t length = a.size(along_depth ? 1 : 0);
  const int64_t width = std::max(a.size(along_depth ? 0 : 1), b.size(1));
  const int64_t piece = std::max(kNumbersAtOnce / width / 64 * 64, int64_t(64));
  for (int64_t from = 0; from < length; from += piece) {
    const int64_t count = std::min(piece, length - from);
    if (along_depth) {
      multiply_parts(a.narrow(1, from, count), b.narrow(0, from, count),
                     from == 0 ? first_data : nullptr, /*adds=*/from > 0, c);
    } else {
      multiply_parts(a.narrow(0, from, count), b, first_data, /*adds=*/false,
                     c.narrow(0, from, count));
    }
  }
  return c;
}
#endif

}  // namespace

Tensor multiply_steps(const Tensor& a, const Tensor& b, const OptionalTensor& initial) {
  const auto dtype = a.scalar_type();
  if (a.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble)) {
    return multiply_on_cpu(a, b, initial);
  }
#ifdef LLTM_JIT_CUDA
  if (a.is_cuda() && pays_in_parts(a, b)) return multiply_in_parts(a, b, initial);
#endif
  const Tensor product = a.mm(b);
  return initial ? product + *initial : product;
}

}  // namespace lltm_jit
