// Products of few rows of floats with large weights.
//
// Note [Few rows]
// Weights that do not fit on the chip come from memory at each step, and a product with few rows of a batch should take
// no longer than reading them. The library's kernels for floats pad few rows to many. Here each number of the weights
// is read once, and multiplied by the rows' numbers, which are in shared memory. With TF32 the library took 0.6 to 0.9
// times as long as this kernel at 3072 units on an H200, and for one row, 0.8 to 1.0 times as long.
#pragma once

#include <cstdint>

#include "core/launch/api.h"

namespace lltm_jit {

struct FewRowsArgs {
  static constexpr int kMostRows = 16;

  const float* rows;  // [count, depth]; aligned to 16 bytes
  int64_t row_stride;
  int count;             // at most kMostRows
  const float* weights;  // [outputs, depth], or the other way round if `transposed`; aligned, too
  int64_t weights_stride;
  int64_t outputs, depth;  // multiples of 4, as strides are
  bool transposed;
  float* products;   // [count, outputs], dense, written
  float* workspace;  // of few_rows_workspace() bytes
};

inline bool few_rows_pay(int64_t count, int64_t hidden_size, bool tf32) {
  constexpr int64_t kMostRounded = 2112;
  return count <= FewRowsArgs::kMostRows && (!tf32 || hidden_size <= kMostRounded);
}

#ifdef LLTM_JIT_CUDA
// Whether a block of so much shared memory has room for such rows.
bool few_rows_fit(int64_t depth, bool transposed, int most_shared_bytes);
int64_t few_rows_workspace(int64_t outputs, bool transposed);
cudaError_t launch_few_rows(const FewRowsArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
