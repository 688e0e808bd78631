// Products of all steps of small layers on a GPU.
//
// Note [Small products of all steps]
// The library takes several kernels for a small product with a bias, or with a depth of many rows, and two more for
// the sums that are the gradient of a bias. One kernel does all of it here. A block has a tile of results. Its warps
// share the depth: each computes the whole tile, and their sums are added in the order of the warps. Many rows are shared
// by a cluster of blocks as well. Sums are floats, and no factor is rounded.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// Vectors of numbers, the rows of A or the columns of B: rows of memory, or columns of it.
struct SmallFactor {
  const void* numbers;
  int64_t row_stride;  // of rows as they lie in memory
  bool depth_inside;   // whether vectors are rows there
};

// Rows [begin, end) that lie elsewhere, or are zeros if that is null.
struct SmallRows {
  const void* numbers;
  int64_t row_stride;
  int begin, end;
};

// results = A B, plus `initial` in each row. Not with the depth inside B alone.
struct SmallProductArgs {
  SmallFactor a, b;
  int64_t rows, columns, depth;
  ElementType type;     // Half, BFloat16 or Float
  const void* initial;  // [columns]; or null
  void* results;        // [rows, columns], dense
  // Where the depth is inside neither factor, the sums of A's rows; or null.
  void* sums;           // [rows]
  SmallRows rows_of_b;  // there, too
};

// Products of one type, in one launch.
struct SmallProducts {
  SmallProductArgs each[2];
  int count;
};

constexpr int64_t kMostSmallDepth = 8192;

#ifdef LLTM_JIT_CUDA
// Whether the kernel takes these, and is quicker than the library.
bool small_product_pays(const SmallProductArgs& args);
cudaError_t launch_small_products(const SmallProducts& all, cudaStream_t stream);
#endif

}  // namespace lltm_jit
